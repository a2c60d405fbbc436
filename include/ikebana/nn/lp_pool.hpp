#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/pool.hpp"

namespace ikebana {

/// The p-norm of each window over the spatial dimensions of [N, C, spatial...] or unbatched [C,
/// spatial...], p = norm_type: the p-th root of the sum of x^p. As in PyTorch, a window that ends
/// beyond the input (ceil_mode) has the mean of its elements as often as the kernel has elements,
/// and a negative sum, of an odd p, has no root. The gradient of a norm of 0 is 0. Options:
/// kernel<..> (required), stride<..> (default: the kernel), ceil_mode<bool> (false). O(output
/// elements * kernel); no allocation.
template <std::size_t Spatial, class... Options>
struct lp_pool {
  static_assert(
      detail::option_set<kernel<>, stride<>, ceil_mode<false>>::template accepts<Options...>,
      "ikebana: LP pooling takes the options kernel, stride and ceil_mode, each once");
  using window = detail::sliding_window<"lp_pool", Spatial, Options...>;
  static constexpr std::string_view kind = window::kind;
  static constexpr kept keeps = kept::both;

  double norm_type = 2;

  constexpr bool operator==(const lp_pool&) const = default;

  static constexpr inferred infer(const shape& in) { return window::infer(in); }
  static constexpr dim_t multiply_adds(const shape_list&, const shape_list&) { return 0; }

  /// Powers of the input, and the gradients of the means of these.
  constexpr std::array<saved_spec, 2> saved(const shape_list& in) const {
    const inferred out = infer(in[0]);
    return {{{0, in[0]}, {0, out.ok() ? out.output() : shape{0}}}};
  }

  void describe(description& d) const {
    d.add("norm_type", norm_type);
    window::describe(d);
    if (window::ceils) d.add("ceil_mode", true);
  }

  template <class T>
  void forward(const context<T>& c) const {
    const dim_t n = c.input_shape().numel(), m = c.output_shape().numel();
    T *powers = c.template saved<T>(0), *y = c.output();
    power(n, c.input(), norm_type, powers);
    means<T> of(c, powers, y);
    mean{}.forward(of.inner);
    cpu::scale<T>(m, elements<T>(), y);
    power(m, y, 1 / norm_type, y);
  }

  template <class T>
  void backward(const context<T>& c) const {
    T* const dx = c.input_gradient();
    if (dx == nullptr) return;
    const dim_t n = c.input_shape().numel(), m = c.output_shape().numel();
    const T *y = c.output(), *dy = c.output_gradient();
    // The sum is y^p, so that its root has the slope y^(1 - p) / p.
    T* const slopes = c.template saved<T>(1);
    power(m, y, 1 - norm_type, slopes);
    for (dim_t i = 0; i < m; ++i)
      slopes[i] = y[i] == T(0) && norm_type != 1 ? T(0) : slopes[i] * dy[i] * elements<T>();
    means<T> of(c, nullptr, nullptr);
    of.output_gradients[1] = slopes;
    of.input_gradients[0] = dx;
    mean{}.backward(of.inner);
    T* const powers = c.template saved<T>(0);
    power(n, c.input(), norm_type - 1, powers);
    cpu::multiply<T>(n, dx, powers, dx);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  using mean = avg_pool<Spatial, Options...>;

  template <class T>
  static constexpr T elements() {
    dim_t n = 1;
    for (const dim_t k : window::kernel_size) n *= k;
    return static_cast<T>(n);
  }

  template <class T>
  static void power(dim_t n, const T* x, double p, T* y) {
    if (p == 2) return cpu::multiply<T>(n, x, x, y);
    const auto e = static_cast<T>(p);
    for (dim_t i = 0; i < n; ++i)
      y[i] = p == 1     ? x[i]
             : p == 0.5 ? std::sqrt(x[i])
             : p == -1  ? 1 / x[i]
             : p == 0   ? T(1)
                        : std::pow(x[i], e);
  }

  /// What average pooling runs on.
  template <class T>
  struct means {
    shape shapes[2];
    int inputs[1] = {0};
    T* values[2];
    T* output_gradients[2]{};
    T* input_gradients[1]{};
    context<T> inner;

    means(const context<T>& c, T* from, T* to)
        : shapes{c.input_shape(), c.output_shape()}, values{from, to}, inner{c} {
      inner.shapes = shapes;
      inner.inputs = inputs;
      inner.arity = 1;
      inner.first_output = 1;
      inner.values = values;
      inner.value_gradients = output_gradients;
      inner.edge_gradients = input_gradients;
      inner.other_output = nullptr;
    }
    means(const means&) = delete;
  };
};

/// LP pooling over [N, C, length] or [C, length].
template <class... NamedOptions>
using lp_pool1d = lp_pool<1, NamedOptions...>;

/// LP pooling over [N, C, height, width] or [C, height, width].
template <class... NamedOptions>
using lp_pool2d = lp_pool<2, NamedOptions...>;

/// LP pooling over [N, C, depth, height, width] or [C, depth, height, width].
template <class... NamedOptions>
using lp_pool3d = lp_pool<3, NamedOptions...>;

}  // namespace ikebana
