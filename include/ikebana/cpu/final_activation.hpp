#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/dispatch.hpp"

namespace ikebana::cpu {

namespace detail {

template <class T>
void run_activation(activation f, dim_t rows, dim_t columns, T* c, dim_t ldc) {
  IKEBANA_CPU_DISPATCH(activate_block<T>)(f, rows, columns, c, ldc);
}
IKEBANA_CPU_KERNEL(run_activation)

}  // namespace detail

/// The activation that a product ends in, with its kernel: what names none builds none.
template <class T>
class final_activation {
 public:
  constexpr final_activation() = default;
  constexpr final_activation(activation f)
      : name_{f}, run_{f == activation::none ? nullptr : &detail::run_activation<T>} {}

  constexpr operator activation() const { return name_; }
  /// c[i, j] = f(c[i, j]).
  void operator()(dim_t rows, dim_t columns, T* c, dim_t ldc) const {
    if (run_ != nullptr) run_(name_, rows, columns, c, ldc);
  }

 private:
  activation name_ = activation::none;
  void (*run_)(activation, dim_t, dim_t, T*, dim_t) = nullptr;
};

}  // namespace ikebana::cpu
