#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana::detail {
IKEBANA_CPU_BEGIN_SMALL

/// Memory with a lifetime.
struct memory_request {
  dim_t bytes = 0;
  int begin = 0;
  int end = 0;
  dim_t offset = -1;
  dim_t* to = nullptr;
  int arm = -1;  ///< Needed only if this alternative runs.
  /// Needed again, after the content was lost; not if it ends before it begins.
  int again_begin = 0;
  int again_end = -1;

  constexpr bool is_alive_with(const memory_request& other) const {
    if (again_end < 0 && other.again_end < 0) return meet(begin, end, other.begin, other.end);
    return meet(begin, end, other.begin, other.end) ||
           meet(begin, end, other.again_begin, other.again_end) ||
           meet(again_begin, again_end, other.begin, other.end) ||
           meet(again_begin, again_end, other.again_begin, other.again_end);
  }

 private:
  static constexpr bool meet(int a, int a_end, int b, int b_end) {
    return a <= b_end && b <= a_end && a <= a_end && b <= b_end;
  }
};

/// Whether two alternatives never run in one pass.
constexpr bool exclude_each_other(const program_arm* arms, int a, int b) {
  for (; a >= 0; a = arms[a].parent)
    for (int c = b; c >= 0; c = arms[c].parent)
      if (arms[a].choice == arms[c].choice && arms[a].alternative != arms[c].alternative)
        return true;
  return false;
}

/// Assigns an offset to each request so that requests with overlapping lifetimes do not overlap in
/// memory: largest first, each at the lowest free offset (the greedy-by-size strategy of Pisarchyk
/// and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020). Alternatives of one
/// choice share memory. Returns the bytes needed.
[[gnu::cold]] constexpr dim_t place(memory_request* requests, std::size_t count,
                                    const program_arm* arms = nullptr) {
  for (std::size_t i = 1; i < count; ++i)
    for (std::size_t j = i; j > 0 && requests[j - 1].bytes < requests[j].bytes; --j) {
      const memory_request swapped = requests[j];
      requests[j] = requests[j - 1];
      requests[j - 1] = swapped;
    }
  dim_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    memory_request& r = requests[i];
    r.offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t j = 0; j < i; ++j) {
        const memory_request& other = requests[j];
        const bool overlap =
            r.offset < other.offset + other.bytes && other.offset < r.offset + r.bytes;
        if (overlap && r.is_alive_with(other) && !exclude_each_other(arms, r.arm, other.arm)) {
          r.offset = other.offset + other.bytes;
          moved = true;
        }
      }
    }
    *r.to = r.offset;
    if (r.offset + r.bytes > total) total = r.offset + r.bytes;
  }
  return total;
}

IKEBANA_CPU_END_SMALL
}  // namespace ikebana::detail
