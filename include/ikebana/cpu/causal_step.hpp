#pragma once

#include <cstddef>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/gated_step.hpp"
#include "ikebana/cpu/gemm.hpp"

namespace ikebana::cpu {

/// One step of one sequence through a causal convolution. `ring` has `length` samples of `in`
/// channels each; the first tap is that of sample `first`, the next ones are `dilation` apart.
template <class T>
struct causal_step {
  dim_t in, out, taps, length, dilation, first;
  const T* packed;  ///< By pack_causal_step.
  const T* ring;
  T* y;
  activation function = activation::none;  ///< Applied last; tanh at most.
};

/// What pack_causal_step writes: for every 16 outputs, whole registers of any instruction set,
/// their biases and the columns of the weights of each tap.
constexpr dim_t causal_step_size(dim_t in, dim_t out, dim_t taps) {
  return (out + 15) / 16 * 16 * (1 + in * taps);
}

/// Weights are (out, in, taps); `packed` is zero at first. The bias may be null.
template <class T>
[[gnu::cold]] void pack_causal_step(dim_t in, dim_t out, dim_t taps, const T* weight, const T* bias,
                                    T* packed) {
  for (dim_t j = 0; j < out; ++j) {
    T* to = packed + j / 16 * 16 * (1 + in * taps) + j % 16;
    *to = bias == nullptr ? T(0) : bias[j];
    for (dim_t k = 0; k < taps; ++k)
      for (dim_t i = 0; i < in; ++i) *(to += 16) = weight[(j * in + i) * taps + k];
  }
}

}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/causal_step-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu {

/// y = the convolution at the newest sample, and `function` of it. O(in * out * taps); allocates
/// nothing.
template <class T>
void run_causal_step(const causal_step<T>& step) {
  if (fills_half_at_most<T>(step.out))
    IKEBANA_CPU_DISPATCH_ONE_WIDTH(one_causal_step<T>)(step);
  else
    IKEBANA_CPU_DISPATCH_AVX(one_causal_step<T>)(step);
}
/// to[j * to_step + i] = from[i * from_step + j] for i < m, j < n: from a ring to rows, or back.
template <class T>
void transpose_samples(dim_t m, dim_t n, const T* from, dim_t from_step, T* to, dim_t to_step) {
  if (m > 0 && n > 0) IKEBANA_CPU_DISPATCH(turn<T>)(to, to_step, from, from_step, n, m);
}
IKEBANA_CPU_KERNEL(run_causal_step, transpose_samples)

}  // namespace ikebana::cpu
