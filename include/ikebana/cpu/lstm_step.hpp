#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/recurrent.hpp"

namespace ikebana::cpu {

/// One step of one sequence through an LSTM, in one call.
template <class T>
struct lstm_step {
  dim_t in, hidden;
  const T* packed;  ///< By pack_lstm_step.
  const T* x;
  T *h, *c;                                 ///< The state: what it was, and what it becomes.
  T *gates, *h_before, *c_before, *tanh_c;  ///< What backward needs.
  T *y, *h_after, *c_after;
};

/// What pack_lstm_step writes: for every 16 units, whole registers of any instruction set, their
/// part of the sum of the biases, of the columns of weight_ih and of those of weight_hh, 16 of each
/// gate.
constexpr dim_t lstm_step_size(dim_t in, dim_t hidden) {
  return (hidden + 15) / 16 * (1 + in + hidden) * 64;
}

/// `packed` is zero at first. Biases may be null.
template <class T>
[[gnu::cold]] void pack_lstm_step(dim_t in, dim_t hidden, const T* weight_ih, const T* weight_hh,
                                  const T* bias_ih, const T* bias_hh, T* packed) {
  for (dim_t g = 0; g < 4; ++g)
    for (dim_t j = 0; j < hidden; ++j) {
      const dim_t from = g * hidden + j;
      T* to = packed + j / 16 * (1 + in + hidden) * 64 + g * 16 + j % 16;
      *to = bias_ih == nullptr ? T(0) : bias_ih[from] + bias_hh[from];
      for (dim_t p = 0; p < in; ++p) *(to += 64) = weight_ih[from * in + p];
      for (dim_t p = 0; p < hidden; ++p) *(to += 64) = weight_hh[from * hidden + p];
    }
}

}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/lstm_step-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu {

/// As lstm_gates after the products that give its sums. O(hidden (in + hidden)); allocates nothing.
template <class T>
void run_lstm_step(const lstm_step<T>& step) {
  IKEBANA_CPU_DISPATCH_AVX(one_lstm_step<T>)(step);
}
IKEBANA_CPU_KERNEL(run_lstm_step)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
