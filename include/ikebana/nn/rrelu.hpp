#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ikebana/cpu/pointwise.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

/// y = x where x > 0, else a x. In training, each element's a is uniform in [lower, upper); in
/// evaluation it is their mean (Xu et al., Empirical Evaluation of Rectified Activations in
/// Convolutional Network, 2015). The slopes are a function of seed, path, step and element index,
/// and are computed again in backward. O(elements); no allocation.
struct rrelu {
  static constexpr std::string_view kind = "rrelu";
  static constexpr kept keeps = kept::input;
  static constexpr bool is_random = true;

  double lower = 1.0 / 8;
  double upper = 1.0 / 3;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("lower", lower).add("upper", upper); }

  template <class T>
  void forward(const context<T>& c) const {
    const dim_t n = c.output_shape().numel();
    if (c.training())
      scale_negative(c, n, c.input(), c.output());
    else
      cpu::pointwise_forward<T>(cpu::pointwise::leaky_relu, n, mean<T>(), T{}, T{}, c.input(),
                                c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() == nullptr) return;
    const dim_t n = c.output_shape().numel();
    if (c.training())
      scale_negative(c, n, c.output_gradient(), c.input_gradient());
    else
      cpu::pointwise_backward<T>(cpu::pointwise::leaky_relu, n, mean<T>(), T{}, T{}, c.input(),
                                 c.output_gradient(), c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <class T>
  T mean() const {
    return static_cast<T>((lower + upper) / 2);
  }

  /// to = from, times the slope where the input is not positive.
  template <class T>
  void scale_negative(const context<T>& c, dim_t n, const T* from, T* to) const {
    const T* const x = c.input();
    for (dim_t i = 0; i < n; i += 4) {
      const auto words = c.random().words(static_cast<std::uint32_t>(i / 4));
      for (dim_t k = 0; k < 4 && i + k < n; ++k) {
        const double u = words[static_cast<std::size_t>(k)] * 0x1p-32;
        to[i + k] =
            x[i + k] > 0 ? from[i + k] : from[i + k] * static_cast<T>(lower + (upper - lower) * u);
      }
    }
  }
};

}  // namespace ikebana
