#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ikebana/core/compiled_once.hpp"
#include "ikebana/core/shape_error.hpp"

namespace ikebana {

/// Extents and element counts. Signed, as in PyTorch, so that differences are safe.
using dim_t = std::int64_t;

/// A dimension known only at run time (a batch size, the columns of a file).
inline constexpr dim_t dynamic = -1;

/// A dimension left out. It is inferred from the first input: a number if the input's extent is
/// static, else `dynamic`.
inline constexpr dim_t lazy = -2;

/// The extents of a tensor, row-major: at most `max_rank` of them, each a number >= 0, `dynamic` or
/// `lazy`. A structural type, so usable as a template argument (`shape{32, 10}`). Never allocates.
struct shape {
  static constexpr std::size_t max_rank = 8;
  /// More than fits into memory, and small enough that the bytes of several such tensors do not
  /// overflow.
  static constexpr dim_t max_elements = dim_t{1} << 56;

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

  /// The number of extents that are not static.
  constexpr std::size_t dynamic_count() const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < count; ++i) n += extents[i] < 0;
    return n;
  }

  /// Whether the static extents other than 0 have at most max_elements as their product. A tensor
  /// may have only such a shape.
  constexpr bool is_countable() const {
    dim_t n = 1;
    for (std::size_t i = 0; i < count; ++i)
      if (extents[i] > 0 && (__builtin_mul_overflow(n, extents[i], &n) || n > max_elements))
        return false;
    return true;
  }

  /// The product of the extents; 1 for rank 0; `dynamic` if any extent is not static. Throws
  /// shape_error if it exceeds max_elements.
  constexpr dim_t numel() const { return numel(0, count); }

  /// The product of the extents in [first, last), with the same results and errors.
  constexpr dim_t numel(std::size_t first, std::size_t last) const {
    dim_t n = 1;
    bool overflows = false;
    for (std::size_t i = first; i < last; ++i) {
      if (extents[i] < 0) return dynamic;
      overflows |= __builtin_mul_overflow(n, extents[i], &n);
    }
    if (overflows || n > max_elements) refuse_elements();
    return n;
  }

  /// This shape with extent i replaced.
  constexpr shape with(std::size_t i, dim_t d) const {
    shape s = *this;
    s.extents[i] = d;
    return s;
  }

  /// Appends an extent. Requires rank() < max_rank.
  constexpr void push_back(dim_t d) { extents[count++] = d; }

  /// Throws the shape_error of a shape that is not countable. It is not constexpr, so that a call
  /// is an error in a constant expression.
  [[noreturn, gnu::cold]] void refuse_elements() const;
};

#if IKEBANA_ONCE_HERE
IKEBANA_ONCE void shape::refuse_elements() const {
  std::string said = "a tensor has at most 2^56 elements, got the shape [";
  for (std::size_t i = 0; i < count; ++i)
    said += (i == 0 ? "" : ", ") + (extents[i] < 0 ? "dynamic" : std::to_string(extents[i]));
  throw_error(shape_error(said + "]"));
}
#endif

/// The product of two extents that are not negative. If it exceeds shape::max_elements, the result
/// is an extent that no tensor can have.
constexpr dim_t extent_product(dim_t a, dim_t b) {
  dim_t n = 0;
  return __builtin_mul_overflow(a, b, &n) || n > shape::max_elements ? shape::max_elements + 1 : n;
}

/// Whether a tensor of shape `got` matches the declared shape `expected`: equal ranks, and each
/// pair of extents equal or one of them dynamic.
constexpr bool compatible(const shape& expected, const shape& got) {
  if (expected.rank() != got.rank()) return false;
  for (std::size_t i = 0; i < got.rank(); ++i)
    if (expected[i] >= 0 && got[i] >= 0 && expected[i] != got[i]) return false;
  return true;
}

}  // namespace ikebana
