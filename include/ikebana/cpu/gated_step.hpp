#pragma once

#include <cstddef>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"

namespace ikebana::cpu {

/// Whether so many units would leave half of a register of AVX-512 empty, whose divisions and
/// stores of a part take longer than those of AVX2.
template <class T>
constexpr bool fills_half_at_most(dim_t units) {
  return units * dim_t{sizeof(T)} <= 32;
}

/// One step of one sequence through an LSTM (4 gates) or a GRU (3), in one call.
template <class T>
struct gated_step {
  dim_t in, hidden;
  const T* packed;  ///< By pack_gated_step.
  const T* x;
  T *h, *c;  ///< The state: what it was, and what it becomes.
  /// What backward needs; `extra`: tanh_c, new_from_h. If `gates` is null, none is written.
  T *gates, *h_before, *c_before, *extra;
  T *y, *h_after, *c_after;
};

/// What pack_gated_step writes: for every 16 units, whole registers of any instruction set, 16 of
/// each gate of their biases, of the columns of weight_ih, of biases once more, and of the columns
/// of weight_hh. A GRU's new h has its bias of h in the second row of biases; all other biases are
/// added up in the first.
constexpr dim_t gated_step_size(dim_t gates, dim_t in, dim_t hidden) {
  return (hidden + 15) / 16 * (2 + in + hidden) * 16 * gates;
}

/// `packed` is zero at first. Biases may be null.
template <class T>
[[gnu::cold]] void pack_gated_step(dim_t gates, dim_t in, dim_t hidden, const T* weight_ih,
                                   const T* weight_hh, const T* bias_ih, const T* bias_hh,
                                   T* packed) {
  const dim_t row = 16 * gates;
  for (dim_t g = 0; g < gates; ++g)
    for (dim_t j = 0; j < hidden; ++j) {
      const dim_t from = g * hidden + j;
      T* to = packed + j / 16 * (2 + in + hidden) * row + g * 16 + j % 16;
      const T of_x = bias_ih == nullptr ? T(0) : bias_ih[from],
              of_h = bias_ih == nullptr ? T(0) : bias_hh[from];
      const bool apart = gates == 3 && g == 2;
      *to = apart ? of_x : of_x + of_h;
      for (dim_t p = 0; p < in; ++p) *(to += row) = weight_ih[from * in + p];
      *(to += row) = apart ? of_h : T(0);
      for (dim_t p = 0; p < hidden; ++p) *(to += row) = weight_hh[from * hidden + p];
    }
}

}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/gated_step-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu {

/// As lstm_gates after the products that give its sums. O(hidden (in + hidden)); allocates nothing.
template <class T>
void run_lstm_step(const gated_step<T>& step) {
  if (fills_half_at_most<T>(step.hidden))
    IKEBANA_CPU_DISPATCH_ONE_WIDTH(one_gated_step<4, T>)(step);
  else
    IKEBANA_CPU_DISPATCH_AVX(one_gated_step<4, T>)(step);
}
/// As gru_gates after its products; c, c_before and c_after are not used.
template <class T>
void run_gru_step(const gated_step<T>& step) {
  if (fills_half_at_most<T>(step.hidden))
    IKEBANA_CPU_DISPATCH_ONE_WIDTH(one_gated_step<3, T>)(step);
  else
    IKEBANA_CPU_DISPATCH_AVX(one_gated_step<3, T>)(step);
}
IKEBANA_CPU_KERNEL(run_lstm_step, run_gru_step)

}  // namespace ikebana::cpu
