#pragma once

#include <cstddef>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/lstm_step.hpp"
#include "ikebana/cpu/recurrent.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu {

/// One step of one sequence through a GRU, in one call.
template <class T>
struct gru_step {
  dim_t in, hidden;
  const T* packed;  ///< By pack_gru_step.
  const T* x;
  T* h;                              ///< The state: what it was, and what it becomes.
  T *gates, *h_before, *new_from_h;  ///< What backward needs.
  T *y, *h_after;
};

/// What pack_gru_step writes: as lstm_step_size with three gates, and the bias of the new h apart.
constexpr dim_t gru_step_size(dim_t in, dim_t hidden) {
  return (hidden + 15) / 16 * (2 + in + hidden) * 48;
}

/// `packed` is zero at first. Biases may be null.
template <class T>
[[gnu::cold]] void pack_gru_step(dim_t in, dim_t hidden, const T* weight_ih, const T* weight_hh,
                                 const T* bias_ih, const T* bias_hh, T* packed) {
  for (dim_t g = 0; g < 3; ++g)
    for (dim_t j = 0; j < hidden; ++j) {
      const dim_t from = g * hidden + j;
      T* to = packed + j / 16 * (2 + in + hidden) * 48 + g * 16 + j % 16;
      const T of_x = bias_ih == nullptr ? T(0) : bias_ih[from],
              of_h = bias_ih == nullptr ? T(0) : bias_hh[from];
      *to = g < 2 ? of_x + of_h : of_x;
      for (dim_t p = 0; p < in; ++p) *(to += 48) = weight_ih[from * in + p];
      *(to += 48) = g < 2 ? T(0) : of_h;
      for (dim_t p = 0; p < hidden; ++p) *(to += 48) = weight_hh[from * hidden + p];
    }
}

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL

#define IKEBANA_CPU_BODY "ikebana/cpu/gru_step-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu {

/// As gru_gates after the products that give its sums. O(hidden (in + hidden)); allocates nothing.
template <class T>
void run_gru_step(const gru_step<T>& step) {
  IKEBANA_CPU_DISPATCH_AVX(one_gru_step<T>)(step);
}
IKEBANA_CPU_KERNEL(run_gru_step)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
