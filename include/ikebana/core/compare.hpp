#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"

namespace ikebana {

/// Options of allclose, with PyTorch's defaults.
struct allclose_options {
  double rtol = 1e-5;
  double atol = 1e-8;
  bool equal_nan = false;  ///< Whether two elements that are not numbers are close.
};

/// Whether |a - b| <= atol + rtol |b| for all elements, as torch.allclose. Equal infinities are
/// close. Throws shape_error if the shapes differ. No allocation; O(elements).
template <tensor_like A, tensor_like B>
bool allclose(const A& a, const B& b, const allclose_options& within = {}) {
  if (!(a.extents() == b.extents()))
    throw_error(shape_error(diagnostic{"allclose expects equal shapes, got {input} and {other}", 0,
                                       0, a.extents(), b.extents()}));
  const dim_t n = a.extents().numel();
  for (dim_t i = 0; i < n; ++i) {
    const auto x = static_cast<double>(a.data()[i]), y = static_cast<double>(b.data()[i]);
    if (x == y || (within.equal_nan && x != x && y != y)) continue;
    const double apart = x < y ? y - x : x - y, most = within.atol + within.rtol * (y < 0 ? -y : y);
    // Written so that NaN and infinities are not close.
    if (!(apart <= most) || apart - apart != 0) return false;
  }
  return true;
}

/// The index of the largest element along a dimension (of equal ones the first), [without that
/// dimension]; negative dimensions count from the end. Something not a number is larger than any
/// number, as in PyTorch. Throws shape_error if there is nothing along it. Allocates the result;
/// O(elements).
template <dim_t Dim = -1, tensor_like X>
auto argmax(const X& x) {
  constexpr auto rank = static_cast<dim_t>(X::static_shape.rank());
  static_assert(Dim >= -rank && Dim < rank, "ikebana: argmax takes a dimension of its tensor");
  constexpr auto d = static_cast<std::size_t>(Dim < 0 ? Dim + rank : Dim);
  const auto without = [](const shape& s) {
    shape out;
    for (std::size_t i = 0; i < s.rank(); ++i)
      if (i != d) out.push_back(s[i]);
    return out;
  };
  const shape s = x.extents();
  if (s[d] == 0)
    throw_error(
        shape_error(diagnostic{"argmax expects an extent of at least {expected}, got {got} (of "
                               "{input})",
                               1, 0, s}));
  constexpr shape result = without(X::static_shape);
  tensor<std::int64_t, result> out(without(s));
  const dim_t inner = s.numel(d + 1, s.rank()), outer = s.numel(0, d);
  for (dim_t i = 0; i < outer; ++i)
    for (dim_t j = 0; j < inner; ++j) {
      const auto* const from = x.data() + i * s[d] * inner + j;
      dim_t best = 0;
      for (dim_t k = 1; k < s[d]; ++k) {
        const auto candidate = from[k * inner], held = from[best * inner];
        if (candidate > held || (candidate != candidate && held == held)) best = k;
      }
      out[i * inner + j] = best;
    }
  return out;
}

}  // namespace ikebana
