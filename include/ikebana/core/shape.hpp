#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace ikebana {

/// Extents and element counts. Signed, as in PyTorch, so that differences are safe.
using dim_t = std::int64_t;

/// A dimension that only run time knows (a batch size, the columns of a file).
inline constexpr dim_t dynamic = -1;

/// A dimension left out, to be inferred from the first input: a number if the input's is static,
/// else `dynamic`.
inline constexpr dim_t lazy = -2;

/// The extents of a tensor, row-major. A structural type: usable as a template argument (`shape{32,
/// 10}`). Each extent is a number >= 0, `dynamic` or `lazy`. At most `max_rank` extents; never
/// allocates.
struct shape {
  static constexpr std::size_t max_rank = 8;

  dim_t extents[max_rank]{};
  std::size_t count = 0;

  constexpr shape() = default;

  template <std::integral... D>
  requires(sizeof...(D) > 0 && sizeof...(D) <= max_rank) constexpr shape(D... d)
      : extents{static_cast<dim_t>(d)...}, count{sizeof...(D)} {}

  constexpr std::size_t rank() const { return count; }
  constexpr dim_t operator[](std::size_t i) const { return extents[i]; }
  constexpr dim_t& operator[](std::size_t i) { return extents[i]; }
  constexpr dim_t front() const { return extents[0]; }
  constexpr dim_t back() const { return extents[count - 1]; }
  constexpr const dim_t* begin() const { return extents; }
  constexpr const dim_t* end() const { return extents + count; }

  constexpr bool operator==(const shape& other) const {
    if (count != other.count) return false;
    for (std::size_t i = 0; i < count; ++i)
      if (extents[i] != other.extents[i]) return false;
    return true;
  }

  /// Whether every extent is a number.
  constexpr bool is_static() const {
    for (std::size_t i = 0; i < count; ++i)
      if (extents[i] < 0) return false;
    return true;
  }

  /// How many extents only run time knows.
  constexpr std::size_t dynamic_count() const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < count; ++i) n += extents[i] < 0;
    return n;
  }

  /// The product of the extents; 1 for rank 0; `dynamic` if any extent is.
  constexpr dim_t numel() const {
    dim_t n = 1;
    for (std::size_t i = 0; i < count; ++i) {
      if (extents[i] < 0) return dynamic;
      n *= extents[i];
    }
    return n;
  }

  /// The product of the extents in [first, last); `dynamic` if any of them is.
  constexpr dim_t numel(std::size_t first, std::size_t last) const {
    dim_t n = 1;
    for (std::size_t i = first; i < last; ++i) {
      if (extents[i] < 0) return dynamic;
      n *= extents[i];
    }
    return n;
  }

  /// This shape with extent i replaced.
  constexpr shape with(std::size_t i, dim_t d) const {
    shape s = *this;
    s.extents[i] = d;
    return s;
  }

  /// Adds a trailing extent. Requires rank() < max_rank.
  constexpr void push_back(dim_t d) { extents[count++] = d; }
};

/// Whether a tensor of shape `got` may stand where `expected` is declared: equal ranks, and each
/// pair of extents equal or one of them dynamic.
constexpr bool compatible(const shape& expected, const shape& got) {
  if (expected.rank() != got.rank()) return false;
  for (std::size_t i = 0; i < got.rank(); ++i)
    if (expected[i] >= 0 && got[i] >= 0 && expected[i] != got[i]) return false;
  return true;
}

}  // namespace ikebana
