#pragma once

#include <string_view>
#include <type_traits>

#include "ikebana/core/error.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/module/element_mismatch.hpp"
#include "ikebana/module/loss_leaf.hpp"
#include "ikebana/module/loss_reduction.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/loss_values.hpp"

namespace ikebana {

/// The mean (or sum) of (prediction - target)^2 over all elements. Throws shape_error unless the
/// shapes are equal: nothing is broadcast. The mean over no elements is NaN. O(elements); no
/// allocation.
struct mse_loss {
  static constexpr std::string_view name = "mse_loss";
  static constexpr element_kind target_kind = element_kind::real;

  ikebana::reduction reduction = ikebana::reduction::mean;

  constexpr bool operator==(const mse_loss&) const = default;

  template <class T, class U>
  static constexpr diagnostic check_elements() {
    if constexpr (std::is_same_v<U, T>)
      return {};
    else
      return {
          detail::element_mismatch<"mse_loss expects a target of the prediction type ", T, U>.c_str()};
  }

  static constexpr diagnostic check(const shape& prediction, const shape& target) {
    if (!compatible(prediction, target))
      return {"mse_loss expects a target of shape {input}, got {other}", 0, 0, prediction, target};
    return {};
  }

  template <tensor_like Target>
  void validate(const shape& prediction, const Target& target) const {
    const diagnostic wrong = check(prediction, target.extents());
    if (!wrong.ok()) throw_error(shape_error(wrong));
    detail::check_reduction(reduction);
  }
  template <class U>
  void check_values(const shape&, const shape&, const U*) const {}
  template <class U>
  static constexpr shape value_shape(const shape& prediction, const shape&) {
    return prediction;
  }

  template <symbolic X, symbolic Y>
  constexpr auto operator()(const X& x, const Y& target) const {
    return detail::apply_loss(*this, x, target);
  }

  template <tensor_like Prediction, tensor_like Target>
  requires(detail::takes_target<mse_loss, Prediction, Target>) auto operator()(
      const Prediction& prediction, const Target& target) const {
    return backward(prediction, target, static_cast<typename Prediction::value_type*>(nullptr));
  }
  template <tensor_like Prediction, tensor_like Target>
  requires(!detail::takes_target<mse_loss, Prediction, Target>) auto operator()(const Prediction&,
                                                                                const Target&) const
      -> decltype(detail::refuse<detail::check_loss_of<mse_loss, Prediction, Target>>());

  template <tensor_like Prediction, tensor_like Target, class T>
  requires(detail::takes_target<mse_loss, Prediction, Target>) T
      backward(const Prediction& prediction, const Target& target, T* gradient)
  const {
    validate(prediction.extents(), target);
    return run(detail::loss_call<T, T>{prediction.extents(), target.extents(), prediction.data(),
                                       target.data(), gradient});
  }
  template <tensor_like Prediction, tensor_like Target, class T>
  requires(!detail::takes_target<mse_loss, Prediction, Target>) auto backward(const Prediction&,
                                                                              const Target&,
                                                                              T*) const
      -> decltype(detail::refuse<detail::check_loss_of<mse_loss, Prediction, Target>>());

  template <class T>
  T run(const detail::loss_call<T, T>& c) const {
    const dim_t n = c.extents.numel();
    if (reduction == ikebana::reduction::none) {
      for (dim_t i = 0; i < n; ++i) {
        const T d = c.x[i] - c.target[i];
        if (c.values != nullptr) c.values[i] = d * d;
        if (c.gradient != nullptr)
          c.gradient[i] = c.weights == nullptr ? 2 * d : 2 * d * c.weights[i];
      }
      return T{};
    }
    const T divisor = reduction == ikebana::reduction::mean ? static_cast<T>(n) : T{1};
    // The mean over no elements is 0 / 0 = NaN.
    return cpu::mse<T>(n, c.x, c.target, c.gradient, 2 / divisor) / divisor;
  }
  template <class T>
  void target_gradient(const detail::loss_call<T, T>& c, T factor) const {
    const dim_t n = c.extents.numel();
    factor *= reduction == ikebana::reduction::mean ? 2 / static_cast<T>(n) : T{2};
    for (dim_t i = 0; i < n; ++i)
      c.gradient[i] =
          (c.weights == nullptr ? factor : factor * c.weights[i]) * (c.target[i] - c.x[i]);
  }
};

}  // namespace ikebana
