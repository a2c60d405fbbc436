#pragma once

#include <string_view>

#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/loop_step.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/pointwise_run.hpp"

// Element-wise activations with PyTorch's definitions: any shape, output of the same shape,
// O(elements), no allocation.
namespace ikebana {

/// y = x / (1 + exp(-x)) (Elfwing et al., Sigmoid-Weighted Linear Units for Neural Network Function
/// Approximation, 2017), also called swish.
struct silu {
  static constexpr std::string_view kind = "silu";
  static constexpr kept keeps = kept::input;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr cpu::loop_step loop_step() const {
    return {.kind = cpu::loop_step::kinds::function,
            .f = static_cast<unsigned char>(cpu::activation::silu),
            .cost = 1};
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    cpu::silu_forward<T>(c.output_shape().numel(), c.input(), c.output());
  }
  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() != nullptr)
      cpu::silu_backward<T>(c.output_shape().numel(), c.input(), c.output_gradient(),
                            c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = x if x > 0, else alpha (exp(x) - 1) (Clevert et al., Fast and Accurate Deep Network Learning
/// by Exponential Linear Units, 2015).
struct elu {
  static constexpr std::string_view kind = "elu";
  static constexpr kept keeps = kept::input;

  double alpha = 1;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("alpha", alpha); }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::elu, static_cast<T>(alpha), T{1}, T{1});
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::elu, static_cast<T>(alpha), T{1}, T{1});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = x if x > 0, else alpha (exp(x / alpha) - 1) (Barron, Continuously Differentiable Exponential
/// Linear Units, 2017).
struct celu {
  static constexpr std::string_view kind = "celu";
  static constexpr kept keeps = kept::input;

  double alpha = 1;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("alpha", alpha); }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::elu, static_cast<T>(alpha), T{1},
                              static_cast<T>(1 / alpha));
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::elu, static_cast<T>(alpha), T{1},
                               static_cast<T>(1 / alpha));
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = scale x if x > 0, else scale alpha (exp(x) - 1); scale 1.0507 and alpha 1.6733 preserve mean
/// 0 and variance 1 (Klambauer et al., Self-Normalizing Neural Networks, 2017).
struct selu {
  static constexpr std::string_view kind = "selu";
  static constexpr kept keeps = kept::input;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::elu,
                              static_cast<T>(1.6732632423543772848 * 1.0507009873554804934),
                              static_cast<T>(1.0507009873554804934), T{1});
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::elu,
                               static_cast<T>(1.6732632423543772848 * 1.0507009873554804934),
                               static_cast<T>(1.0507009873554804934), T{1});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = log(1 + exp(beta x)) / beta, or x if beta x > threshold.
struct softplus {
  static constexpr std::string_view kind = "softplus";
  static constexpr kept keeps = kept::input;

  double beta = 1;
  double threshold = 20;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("beta", beta).add("threshold", threshold); }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::softplus, static_cast<T>(beta),
                              static_cast<T>(threshold), static_cast<T>(1 / beta));
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::softplus, static_cast<T>(beta),
                               static_cast<T>(threshold), static_cast<T>(1 / beta));
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = log(1 / (1 + exp(-x))).
struct log_sigmoid {
  static constexpr std::string_view kind = "log_sigmoid";
  static constexpr kept keeps = kept::input;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::log_sigmoid, T{}, T{}, T{});
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::log_sigmoid, T{}, T{}, T{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = x tanh(log(1 + exp(x))) (Misra, Mish: A Self Regularized Non-Monotonic Activation
/// Function, 2019).
struct mish {
  static constexpr std::string_view kind = "mish";
  static constexpr kept keeps = kept::input;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::mish, T{}, T{}, T{});
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::mish, T{}, T{}, T{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = x / (1 + |x|).
struct softsign {
  static constexpr std::string_view kind = "softsign";
  static constexpr kept keeps = kept::input;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::softsign, T{}, T{}, T{});
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::softsign, T{}, T{}, T{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = x - tanh(x).
struct tanhshrink {
  static constexpr std::string_view kind = "tanhshrink";
  static constexpr kept keeps = kept::input;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::tanhshrink, T{}, T{}, T{});
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::tanhshrink, T{}, T{}, T{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace ikebana
