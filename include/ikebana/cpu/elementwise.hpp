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
/// allocates or throws. No error above 2 units in the last place was met (2.1 for silu and
/// gelu_tanh of double on SSE4.2 and AVX2), in both tails, denormal results included, nor above
/// 1.25 units in the last place of 1 for the slopes of silu, gelu and gelu_tanh: docs/kernels.md
/// says at which numbers, test/ulp takes every float.
namespace ikebana::cpu {

/// y = max(x, 0); not-a-number stays.
template <class T>
void relu_forward(dim_t n, const T* x, T* y) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_relu<T>), x, y);
}
/// dx = dy where y > 0, else 0.
template <class T>
void relu_backward(dim_t n, const T* y, const T* dy, T* dx) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_relu_backward<T>), y, dy, dx);
}

/// y = tanh(x).
template <class T>
void tanh_forward(dim_t n, const T* x, T* y) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_tanh<T>), x, y);
}
/// dx = dy (1 - y^2).
template <class T>
void tanh_backward(dim_t n, const T* y, const T* dy, T* dx) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_tanh_backward<T>), y, dy, dx);
}

/// y = 1 / (1 + exp(-x)).
template <class T>
void sigmoid_forward(dim_t n, const T* x, T* y) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_sigmoid<T>), x, y);
}
/// dx = dy y (1 - y).
template <class T>
void sigmoid_backward(dim_t n, const T* y, const T* dy, T* dx) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_sigmoid_backward<T>), y, dy, dx);
}

/// y = x P(X <= x), X standard normal (Hendrycks and Gimpel, 2016); exact, not the tanh form.
template <class T>
void gelu_forward(dim_t n, const T* x, T* y) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_gelu<T>), x, y);
}
/// From x, not from y, which does not determine it.
template <class T>
void gelu_backward(dim_t n, const T* x, const T* dy, T* dx) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_gelu_backward<T>), x, dy, dx);
}

/// y = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
template <class T>
void gelu_tanh_forward(dim_t n, const T* x, T* y) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_gelu_tanh<T>), x, y);
}
/// From x.
template <class T>
void gelu_tanh_backward(dim_t n, const T* x, const T* dy, T* dx) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_gelu_tanh_backward<T>), x, dy, dx);
}

/// y = x / (1 + exp(-x)).
template <class T>
void silu_forward(dim_t n, const T* x, T* y) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_silu<T>), x, y);
}
/// From x.
template <class T>
void silu_backward(dim_t n, const T* x, const T* dy, T* dx) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_silu_backward<T>), x, dy, dx);
}

template <class T>
void exp(dim_t n, const T* x, T* y) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_exp<T>), x, y);
}
template <class T>
void log(dim_t n, const T* x, T* y) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_log<T>), x, y);
}
template <class T>
void erf(dim_t n, const T* x, T* y) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_erf<T>), x, y);
}

/// y = a + b.
template <class T>
void add(dim_t n, const T* a, const T* b, T* y) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_add<T>), a, b, y);
}
/// y = a b.
template <class T>
void multiply(dim_t n, const T* a, const T* b, T* y) {
  detail::share_elements(n, IKEBANA_CPU_DISPATCH(map_multiply<T>), a, b, y);
}
/// y = y + alpha x.
template <class T>
void axpy(dim_t n, T alpha, const T* x, T* y) {
  detail::share_rows(n, 1, IKEBANA_CPU_DISPATCH(map_axpy<T>),
                     [=](auto* kernel, dim_t b, dim_t e) { kernel(e - b, alpha, x + b, y + b); });
}
/// x = alpha x.
template <class T>
void scale(dim_t n, T alpha, T* x) {
  detail::share_rows(n, 1, IKEBANA_CPU_DISPATCH(map_scale<T>),
                     [=](auto* kernel, dim_t b, dim_t e) { kernel(e - b, alpha, x + b); });
}
/// x = value.
template <class T>
void fill(dim_t n, T* x, T value) {
  detail::share_rows(n, 1, IKEBANA_CPU_DISPATCH(map_fill<T>),
                     [=](auto* kernel, dim_t b, dim_t e) { kernel(e - b, x + b, value); });
}

/// y = x / (1 - p) where kept, else 0. Element i is kept iff word `offset` + i of `stream` is at
/// least p 2^32: the same elements for every instruction set and type, so backward is the same call
/// on dy. Requires 0 <= p <= 1.
template <class T>
void dropout(dim_t n, const T* x, T* y, double p, const random_stream& stream,
             std::uint64_t offset = 0) {
  detail::share_rows(
      n, 1, IKEBANA_CPU_DISPATCH(map_dropout<T>), [=](auto* kernel, dim_t b, dim_t e) {
        kernel(e - b, x + b, y + b, p, stream, offset + static_cast<std::uint64_t>(b));
      });
}

IKEBANA_CPU_KERNEL(relu_forward)
IKEBANA_CPU_KERNEL(relu_backward)
IKEBANA_CPU_KERNEL(tanh_forward)
IKEBANA_CPU_KERNEL(tanh_backward)
IKEBANA_CPU_KERNEL(sigmoid_forward)
IKEBANA_CPU_KERNEL(sigmoid_backward)
IKEBANA_CPU_KERNEL(gelu_forward)
IKEBANA_CPU_KERNEL(gelu_backward)
IKEBANA_CPU_KERNEL(gelu_tanh_forward)
IKEBANA_CPU_KERNEL(gelu_tanh_backward)
IKEBANA_CPU_KERNEL(silu_forward)
IKEBANA_CPU_KERNEL(silu_backward)
IKEBANA_CPU_KERNEL(exp)
IKEBANA_CPU_KERNEL(log)
IKEBANA_CPU_KERNEL(erf)
IKEBANA_CPU_KERNEL(add)
IKEBANA_CPU_KERNEL(multiply)
IKEBANA_CPU_KERNEL(axpy)
IKEBANA_CPU_KERNEL(scale)
IKEBANA_CPU_KERNEL(fill)
IKEBANA_CPU_KERNEL(dropout)

}  // namespace ikebana::cpu
