#pragma once

#include <string_view>

#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/symbol.hpp"

// Element-wise activations with PyTorch's definitions: any shape, output of the same shape,
// O(elements), no allocation.
namespace ikebana {

namespace detail {
struct approximate_option;
}  // namespace detail

/// y = max(x, 0), element-wise. The gradient at 0 is 0.
struct relu {
  static constexpr std::string_view kind = "relu";
  static constexpr kept keeps = kept::output;
  static constexpr bool in_place = true;
  static constexpr cpu::activation as_activation = cpu::activation::relu;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    cpu::relu_forward<T>(c.output_shape().numel(), c.input(), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() != nullptr)
      cpu::relu_backward<T>(c.output_shape().numel(), c.output(), c.output_gradient(),
                            c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = tanh(x), element-wise.
struct tanh {
  static constexpr std::string_view kind = "tanh";
  static constexpr kept keeps = kept::output;
  static constexpr bool in_place = true;
  static constexpr cpu::activation as_activation = cpu::activation::tanh;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    cpu::tanh_forward<T>(c.output_shape().numel(), c.input(), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() != nullptr)
      cpu::tanh_backward<T>(c.output_shape().numel(), c.output(), c.output_gradient(),
                            c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = 1 / (1 + exp(-x)), element-wise.
struct sigmoid {
  static constexpr std::string_view kind = "sigmoid";
  static constexpr kept keeps = kept::output;
  static constexpr bool in_place = true;
  static constexpr cpu::activation as_activation = cpu::activation::sigmoid;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    cpu::sigmoid_forward<T>(c.output_shape().numel(), c.input(), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() != nullptr)
      cpu::sigmoid_backward<T>(c.output_shape().numel(), c.output(), c.output_gradient(),
                               c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// The formula of gelu: approximate<"none"> or approximate<"tanh">.
template <detail::literal How>
struct approximate {
  using option = detail::approximate_option;
  static constexpr std::string_view value{How.data, How.size()};
};

/// y = x P(X <= x) with X standard normal, element-wise (Hendrycks and Gimpel, Gaussian Error
/// Linear Units, 2016). Option: approximate<"none"> (default), or approximate<"tanh"> for y = x / 2
/// (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
template <class... Options>
struct gelu {
  static_assert(detail::option_set<approximate<"none">>::template accepts<Options...>,
                "ikebana: gelu takes the option approximate, once");

  static constexpr std::string_view kind = "gelu";
  static constexpr kept keeps = kept::input;
  static constexpr std::string_view how = detail::option_or<approximate<"none">, Options...>::value;
  static constexpr cpu::activation as_activation =
      how == "tanh" ? cpu::activation::gelu_tanh : cpu::activation::gelu;
  static_assert(how == "none" || how == "tanh",
                "ikebana: gelu takes approximate<\"none\"> or approximate<\"tanh\">");

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("approximate", how); }

  template <class T>
  void forward(const context<T>& c) const {
    const dim_t n = c.output_shape().numel();
    if constexpr (how == "tanh")
      cpu::gelu_tanh_forward<T>(n, c.input(), c.output());
    else
      cpu::gelu_forward<T>(n, c.input(), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() == nullptr) return;
    const dim_t n = c.output_shape().numel();
    if constexpr (how == "tanh")
      cpu::gelu_tanh_backward<T>(n, c.input(), c.output_gradient(), c.input_gradient());
    else
      cpu::gelu_backward<T>(n, c.input(), c.output_gradient(), c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace ikebana
