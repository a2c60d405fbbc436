#pragma once

#include <string_view>

#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/pointwise_run.hpp"

// Element-wise activations with PyTorch's definitions: any shape, output of the same shape,
// O(elements), no allocation.
namespace ikebana {

/// y = x if x > 0, else negative_slope x (Maas et al., Rectifier Nonlinearities Improve Neural
/// Network Acoustic Models, 2013).
struct leaky_relu {
  static constexpr std::string_view kind = "leaky_relu";
  static constexpr kept keeps = kept::input;

  double negative_slope = 0.01;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("negative_slope", negative_slope); }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::leaky_relu, static_cast<T>(negative_slope), T{},
                              T{});
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::leaky_relu, static_cast<T>(negative_slope), T{},
                               T{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = x clamped to [min_val, max_val].
struct hardtanh {
  static constexpr std::string_view kind = "hardtanh";
  static constexpr kept keeps = kept::input;

  double min_val = -1;
  double max_val = 1;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("min_val", min_val).add("max_val", max_val); }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::hardtanh, static_cast<T>(min_val),
                              static_cast<T>(max_val), T{});
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::hardtanh, static_cast<T>(min_val),
                               static_cast<T>(max_val), T{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = min(max(x, 0), 6).
struct relu6 {
  static constexpr std::string_view kind = "relu6";
  static constexpr kept keeps = kept::input;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::hardtanh, T{0}, T{6}, T{});
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::hardtanh, T{0}, T{6}, T{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = min(max(x + 3, 0), 6) / 6.
struct hard_sigmoid {
  static constexpr std::string_view kind = "hard_sigmoid";
  static constexpr kept keeps = kept::input;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::hard_sigmoid, T{}, T{}, T{});
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::hard_sigmoid, T{}, T{}, T{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = x min(max(x + 3, 0), 6) / 6 (Howard et al., Searching for MobileNetV3, 2019).
struct hardswish {
  static constexpr std::string_view kind = "hardswish";
  static constexpr kept keeps = kept::input;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::hardswish, T{}, T{}, T{});
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::hardswish, T{}, T{}, T{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = x where x > threshold, else value.
struct threshold {
  static constexpr std::string_view kind = "threshold";
  static constexpr kept keeps = kept::input;

  double threshold = 0;
  double value = 0;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("threshold", threshold).add("value", value); }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::threshold, static_cast<T>(threshold),
                              static_cast<T>(value), T{});
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::threshold, static_cast<T>(threshold),
                               static_cast<T>(value), T{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = x where |x| > lambd, else 0.
struct hardshrink {
  static constexpr std::string_view kind = "hardshrink";
  static constexpr kept keeps = kept::input;

  double lambd = 0.5;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("lambd", lambd); }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::hardshrink, static_cast<T>(lambd), T{}, T{});
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::hardshrink, static_cast<T>(lambd), T{}, T{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = x - lambd where x > lambd, x + lambd where x < -lambd, else 0.
struct softshrink {
  static constexpr std::string_view kind = "softshrink";
  static constexpr kept keeps = kept::input;

  double lambd = 0.5;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("lambd", lambd); }

  template <class T>
  void forward(const context<T>& c) const {
    detail::pointwise_forward(c, cpu::pointwise::softshrink, static_cast<T>(lambd), T{}, T{});
  }
  template <class T>
  void backward(const context<T>& c) const {
    detail::pointwise_backward(c, cpu::pointwise::softshrink, static_cast<T>(lambd), T{}, T{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace ikebana
