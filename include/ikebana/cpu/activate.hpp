#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/final_activation.hpp"

namespace ikebana::cpu::detail {

/// The activations of `Of`, bits of `one_activation`.
template <class T, unsigned Of>
void run_activations(activation f, dim_t rows, dim_t columns, T* c, dim_t ldc) {
  IKEBANA_CPU_DISPATCH_AVX(activate_block<T, Of>)(f, rows, columns, c, ldc);
}
template <class T>
void run_activation(activation f, dim_t rows, dim_t columns, T* c, dim_t ldc) {
  run_activations<T, every_activation>(f, rows, columns, c, ldc);
}
IKEBANA_CPU_KERNEL(run_activation)

}  // namespace ikebana::cpu::detail

namespace ikebana::cpu {

/// The kernel of what a caller's type names, and of no others; null for none.
template <class T, unsigned Of>
constexpr activation_kernel<T> activation_kernel_of() {
  if constexpr (Of == 0)
    return nullptr;
  else if constexpr (IKEBANA_CPU_HERE)
    return &detail::run_activations<T, Of>;
  else
    return &detail::run_activation<T>;
}

}  // namespace ikebana::cpu
