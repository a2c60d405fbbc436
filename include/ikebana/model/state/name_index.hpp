#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ikebana/core/dependent.hpp"

namespace ikebana::detail {

/// Finds the indices 0, 1, ... of names that are stored elsewhere: `name_of(i)`. Unlike a hash
/// table's, its cost does not depend on the names, which come from files.
///
/// The indices are kept in sorted runs whose lengths are the powers of two that add up to their
/// number (Bentley and Saxe, Decomposable searching problems, 1980): O(log^2 n) comparisons to
/// find, O(log n) amortised to add.
///
/// A template, so that it is compiled only where it is used.
template <class X>
class basic_name_index {
 public:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  /// The index of that name, or `none`. No allocation.
  template <class NameOf>
  std::size_t find(std::string_view name, NameOf&& name_of) const {
    std::size_t begin = 0;
    for (std::size_t run = top_bit(runs_.size()); run != 0; run >>= 1) {
      if ((runs_.size() & run) == 0) continue;
      std::size_t low = begin, n = run;
      while (n > 1) {
        const std::size_t half = n / 2;
        if (name_of(runs_[low + half]) <= name) low += half;
        n -= half;
      }
      if (name_of(runs_[low]) == name) return runs_[low];
      begin += run;
    }
    return none;
  }

  /// Adds the next index, whose name must be new.
  template <class NameOf>
  void add(NameOf&& name_of) {
    const std::size_t n = runs_.size();
    first_.resize(n + 1);
    runs_.push_back(static_cast<std::uint32_t>(n));
    // As in a binary counter, runs of equal length are merged.
    for (std::size_t run = 1; (n & run) != 0; run <<= 1) merge_last(run, name_of);
  }

  /// Builds the index of `count` names. Returns the index of a name that occurs twice, or `none`.
  /// O(count log^2 count) comparisons.
  template <class NameOf>
  std::size_t assign(std::size_t count, NameOf&& name_of) {
    runs_.clear();
    runs_.reserve(count);
    std::size_t twice = none;
    for (std::size_t i = 0; i < count; ++i) {
      if (find(name_of(i), name_of) != none) twice = i;
      add(name_of);
    }
    return twice;
  }

  void swap(basic_name_index& other) noexcept {
    runs_.swap(other.runs_);
    first_.swap(other.first_);
  }

 private:
  /// Merges the last two runs, of n indices each. Written out, because std::sort and
  /// std::inplace_merge cost 0.3 s of compile time.
  template <class NameOf>
  void merge_last(std::size_t n, NameOf&& name_of) {
    std::uint32_t* const end = runs_.data() + runs_.size();
    const std::uint32_t* second = end - n;
    std::uint32_t* to = end - 2 * n;
    for (std::size_t i = 0; i < n; ++i) first_[i] = to[i];
    for (std::size_t i = 0; i < n; ++i) {
      while (second != end && name_of(*second) < name_of(first_[i])) *to++ = *second++;
      *to++ = first_[i];
    }
  }

  static constexpr std::size_t top_bit(std::size_t n) {
    std::size_t bit = 0;
    for (std::size_t b = 1; b != 0 && b <= n; b <<= 1) bit = b;
    return bit;
  }

  std::vector<dependent<std::uint32_t, X>> runs_;
  std::vector<dependent<std::uint32_t, X>>
      first_;  ///< Scratch of merge_last, allocated before anything changes.
};
using name_index = basic_name_index<void>;

}  // namespace ikebana::detail
