#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/parallel.hpp"

namespace ikebana::cpu {

/// Activations of which backward reads the input, with up to three parameters a, b, c:
/// leaky_relu (slope), elu (b x above 0, else a (exp(c x) - 1)), softplus (log(1 + exp(a x)) c with
/// c = 1 / a, x itself where a x > b), hardtanh (between a and b), threshold (b where not above a),
/// hardshrink and softshrink (0 within [-a, a]); the others have none.
enum class pointwise : unsigned char {
  leaky_relu,
  elu,
  softplus,
  log_sigmoid,
  hardtanh,
  hard_sigmoid,
  hardswish,
  mish,
  softsign,
  threshold,
  hardshrink,
  softshrink,
  tanhshrink
};

}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/pointwise-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu {

/// y = f(x); y may be x. Does not allocate or throw.
template <class T>
void pointwise_forward(pointwise f, dim_t n, T a, T b, T c, const T* x, T* y) {
  detail::run_rows(n, 1, IKEBANA_CPU_DISPATCH_AVX(pointwise_map<T>), f, a, b, c, x, y);
}
/// dx = dy f'(x); dx may be dy. Where a piecewise function bends, the derivative is PyTorch's.
template <class T>
void pointwise_backward(pointwise f, dim_t n, T a, T b, T c, const T* x, const T* dy, T* dx) {
  detail::run_rows(n, 1, IKEBANA_CPU_DISPATCH_AVX(pointwise_map_backward<T>), f, a, b, c, x, dy,
                   dx);
}

IKEBANA_CPU_KERNEL(pointwise_forward, pointwise_backward)

}  // namespace ikebana::cpu
