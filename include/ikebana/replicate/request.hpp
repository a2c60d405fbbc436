#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/span_of.hpp"
#include "ikebana/replicate/process_group.hpp"

/// What a rank asks of its group, in a form that ranks can compare, and the messages for errors;
/// shared by all kinds of groups.
namespace ikebana::detail {

enum class collective : std::uint8_t { barrier, broadcast, all_gather, reduce_scatter, all_reduce };

constexpr const char* name(collective what) {
  switch (what) {
    case collective::barrier:
      return "barrier";
    case collective::broadcast:
      return "broadcast";
    case collective::all_gather:
      return "all_gather";
    case collective::reduce_scatter:
      return "reduce_scatter";
    case collective::all_reduce:
      return "all_reduce";
  }
  return "?";
}

/// The element type, as far as ranks must agree on it.
struct element_type {
  char kind = 'x';  // f: floating, b: bfloat, i: signed, u: unsigned, x: bytes
  std::uint32_t size = 0;
  constexpr bool operator==(const element_type&) const = default;
};

template <class T>
constexpr element_type element_type_of() {
  constexpr bool is_floating = std::is_floating_point_v<T> || std::is_same_v<T, float16>;
  constexpr char kind = std::is_same_v<T, bfloat16> ? 'b'
                        : is_floating               ? 'f'
                        : !std::is_integral_v<T>    ? 'x'
                        : std::is_signed_v<T>       ? 'i'
                                                    : 'u';
  return {kind, static_cast<std::uint32_t>(sizeof(T))};
}

/// What a rank asks for: the collective, its arguments, and its memory.
struct request {
  collective what = collective::barrier;
  reduce_op op = reduce_op::sum;
  element_type element{};
  int root = 0;
  dim_t length = 0;
  const void* send = nullptr;
  void* receive = nullptr;

  std::size_t bytes() const { return static_cast<std::size_t>(length) * element.size; }

  bool agrees_with(const request& other) const {
    return what == other.what && op == other.op && element == other.element && root == other.root &&
           length == other.length;
  }

  /// "all_reduce of 10 float32 (avg)"
  template <class = void>
  std::string text() const {
    std::string s = detail::name(what);
    if (what == collective::barrier) return s;
    s += " of " + std::to_string(length) + " ";
    if (element.kind == 'x')
      s += "x " + std::to_string(element.size) + " bytes";
    else
      s += (element.kind == 'f'   ? "float"
            : element.kind == 'b' ? "bfloat"
            : element.kind == 'i' ? "int"
                                  : "uint") +
           std::to_string(8 * element.size);
    if (what == collective::broadcast) s += " (from rank " + std::to_string(root) + ")";
    if (what == collective::reduce_scatter || what == collective::all_reduce)
      s += std::string(" (") + ikebana::name(op) + ")";
    return s;
  }
};

template <class T>
constexpr request request_of(collective what, std::size_t length) {
  request r;
  r.what = what;
  r.element = element_type_of<T>();
  r.length = static_cast<dim_t>(length);
  return r;
}

template <class = void>
std::string rank_text(int rank) {
  return "rank " + std::to_string(rank);
}

template <class = void>
std::string seconds_text(double seconds) {
  char s[32];
  std::snprintf(s, sizeof(s), "%.3f s", seconds);
  return s;
}

/// The message when two ranks called different collectives; the same on every rank.
template <class = void>
std::string mismatch_text(int one, const request& its, int other, const request& others) {
  return rank_text(one) + " called " + its.text() + ", " + rank_text(other) + " called " +
         others.text();
}

/// "all_reduce of 10 float32 (avg): expects 20 elements for all ranks together, got 19"; empty if
/// `all` is right.
template <class = void>
std::string room_text(const request& r, int size, std::size_t all) {
  const dim_t expected = r.length * size;
  if (static_cast<dim_t>(all) == expected) return {};
  return r.text() + ": expects " + std::to_string(expected) +
         " elements for all ranks together, got " + std::to_string(all);
}

struct split_entry {
  int color, key, rank;
};

/// The ranks of a group with this color, ordered by key, then by rank. All ranks must call it.
template <class Group>
std::vector<split_entry> members_with(Group& group, int color, int key) {
  std::vector<split_entry> all(static_cast<std::size_t>(group.size()));
  exchange(group, split_entry{color, key, group.rank()}, span_of(all));
  std::erase_if(all, [&](const split_entry& e) { return e.color != color; });
  std::sort(all.begin(), all.end(), [](const split_entry& a, const split_entry& b) {
    return a.key != b.key ? a.key < b.key : a.rank < b.rank;
  });
  return all;
}

/// Rethrows one of Ikebana's exceptions as the same type, with "rank r: " before the text if it
/// does not have it already. Rethrows other exceptions unchanged, and without RTTI all of them.
template <class = void>
[[noreturn]] void rethrow_with_rank(const std::exception_ptr& failure, int rank) {
  try {
    std::rethrow_exception(failure);
  } catch (const error& e) {
    const std::string prefix = rank_text(rank) + ": ";
    const std::string text = e.what();
    if (text.rfind(prefix, 0) == 0) throw;
#if defined(__cpp_rtti)
    if (typeid(e) == typeid(shape_error)) throw shape_error(prefix + text);
    if (typeid(e) == typeid(state_error)) throw state_error(prefix + text);
    if (typeid(e) == typeid(io_error)) throw io_error(prefix + text);
    if (typeid(e) == typeid(communication_error)) throw communication_error(prefix + text);
    if (typeid(e) == typeid(error)) throw error(prefix + text);
#endif
    throw;
  }
}

}  // namespace ikebana::detail
