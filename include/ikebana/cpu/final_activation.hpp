#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activation.hpp"

namespace ikebana::cpu {

/// c[i, j] = f(c[i, j]) for rows of so many columns, `ldc` apart.
template <class T>
using activation_kernel = void (*)(activation f, dim_t rows, dim_t columns, T* c, dim_t ldc);

namespace detail {
/// That of all activations (cpu/activate.hpp).
template <class T>
void run_activation(activation f, dim_t rows, dim_t columns, T* c, dim_t ldc);
}  // namespace detail

/// The activation that a product, a convolution or a norm ends in, with its kernel: what names none
/// builds none.
template <class T>
class final_activation {
 public:
  constexpr final_activation() = default;
  constexpr final_activation(activation f)
      : name_{f}, run_{f == activation::none ? nullptr : &detail::run_activation<T>} {}
  /// With a kernel that knows this one, which may be null where it is none.
  constexpr final_activation(activation f, activation_kernel<T> run) : name_{f}, run_{run} {}

  constexpr operator activation() const { return name_; }
  /// c[i, j] = f(c[i, j]).
  void operator()(dim_t rows, dim_t columns, T* c, dim_t ldc) const {
    if (name_ != activation::none) run_(name_, rows, columns, c, ldc);
  }

 private:
  activation name_ = activation::none;
  activation_kernel<T> run_ = nullptr;
};

}  // namespace ikebana::cpu
