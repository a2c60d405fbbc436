#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/parallel.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/elementwise-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

/// Functions of single elements, over arrays of n. Results may be written over an operand. None
/// allocates or throws. No error above 2 units in the last place was met, in both tails, denormal
/// results included, nor above 1.25 units in the last place of 1 for the slopes of silu, gelu and
/// gelu_tanh: docs/kernels.md says at which numbers, test/ulp takes every float.
namespace ikebana::cpu {

// One for each kernel whose elements are all on their own, `sets` being those that it is built for.
#define IKEBANA_CPU_OF_X(function, kernel, sets)                             \
  template <class T>                                                         \
  void function(dim_t n, const T* x, T* y) {                                 \
    detail::share_elements(n, IKEBANA_CPU_DISPATCH_##sets(kernel<T>), x, y); \
  }                                                                          \
  IKEBANA_CPU_KERNEL(function)
#define IKEBANA_CPU_OF_TWO(function, kernel, sets)                              \
  template <class T>                                                            \
  void function(dim_t n, const T* a, const T* b, T* y) {                        \
    detail::share_elements(n, IKEBANA_CPU_DISPATCH_##sets(kernel<T>), a, b, y); \
  }                                                                             \
  IKEBANA_CPU_KERNEL(function)

/// y = max(x, 0); not-a-number stays.
IKEBANA_CPU_OF_X(relu_forward, map_relu, ONE_WIDTH)
/// y = tanh(x).
IKEBANA_CPU_OF_X(tanh_forward, map_tanh, AVX)
/// y = 1 / (1 + exp(-x)).
IKEBANA_CPU_OF_X(sigmoid_forward, map_sigmoid, AVX)
/// y = x P(X <= x), X standard normal (Hendrycks and Gimpel, 2016); exact, not the tanh form.
IKEBANA_CPU_OF_X(gelu_forward, map_gelu, AVX)
/// y = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
IKEBANA_CPU_OF_X(gelu_tanh_forward, map_gelu_tanh, AVX)
/// y = x / (1 + exp(-x)).
IKEBANA_CPU_OF_X(silu_forward, map_silu, AVX)
IKEBANA_CPU_OF_X(exp, map_exp, AVX)
IKEBANA_CPU_OF_X(log, map_log, AVX)
IKEBANA_CPU_OF_X(erf, map_erf, AVX)

/// Backward: of y or x, and of the gradient dy. dx = 0 where y <= 0, else dy (where y is
/// not a number, too).
IKEBANA_CPU_OF_TWO(relu_backward, map_relu_backward, ONE_WIDTH)
/// dx = dy (1 - y^2).
IKEBANA_CPU_OF_TWO(tanh_backward, map_tanh_backward, ONE_WIDTH)
/// dx = dy y (1 - y).
IKEBANA_CPU_OF_TWO(sigmoid_backward, map_sigmoid_backward, ONE_WIDTH)
/// From x, not from y, which does not determine it, as are the next two.
IKEBANA_CPU_OF_TWO(gelu_backward, map_gelu_backward, AVX)
IKEBANA_CPU_OF_TWO(gelu_tanh_backward, map_gelu_tanh_backward, AVX)
IKEBANA_CPU_OF_TWO(silu_backward, map_silu_backward, AVX)
/// y = a + b.
IKEBANA_CPU_OF_TWO(add, map_add, ONE_WIDTH)
/// y = a b.
IKEBANA_CPU_OF_TWO(multiply, map_multiply, ONE_WIDTH)
#undef IKEBANA_CPU_OF_X
#undef IKEBANA_CPU_OF_TWO

/// y = y + alpha x.
template <class T>
void axpy(dim_t n, T alpha, const T* x, T* y) {
  detail::run_rows(n, 1, IKEBANA_CPU_DISPATCH_ONE_WIDTH(map_axpy<T>), alpha, x, y);
}
/// x = alpha x.
template <class T>
void scale(dim_t n, T alpha, T* x) {
  detail::run_rows(n, 1, IKEBANA_CPU_DISPATCH_ONE_WIDTH(map_scale<T>), alpha, x);
}
/// x = value.
template <class T>
void fill(dim_t n, T* x, T value) {
  detail::run_rows(n, 1, IKEBANA_CPU_DISPATCH_ONE_WIDTH(map_fill<T>), x, value);
}

/// y = x / (1 - p) where kept, else 0. Element i is kept iff word `offset` + i of `stream` is at
/// least p 2^32: the same elements for every instruction set and type, so backward is the same call
/// on dy. Requires 0 <= p <= 1.
template <class T>
void dropout(dim_t n, const T* x, T* y, double p, const random_stream& stream,
             std::uint64_t offset = 0) {
  detail::run_rows(n, 1, IKEBANA_CPU_DISPATCH_ONE_WIDTH(map_dropout<T>), x, y, p, stream, offset);
}

IKEBANA_CPU_KERNEL(axpy, scale, fill, dropout)

}  // namespace ikebana::cpu
