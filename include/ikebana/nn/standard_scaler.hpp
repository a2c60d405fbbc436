#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "ikebana/core/tensor.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

/// y = (x - mean) / deviation for each of the F elements of the last dimension, so that a network
/// takes its data as they come and the numbers are saved with it. F is a number, `lazy` or
/// `dynamic`. Buffers: mean (F), 0 at first, and deviation (F), 1 at first, to be set once:
///
///     const auto s = column_statistics(x);
///     model.buffer("input.mean"_s) = s.mean;
///     model.buffer("input.deviation"_s) = s.deviation;
///
/// O(elements); no allocation.
template <dim_t F>
struct standard_scaler {
  static constexpr std::string_view kind = "standard_scaler";
  static constexpr bool is_lazy = F == lazy;
  static constexpr kept keeps = kept::nothing;

  [[no_unique_address]] extent<F> num_features{};

  constexpr inferred infer(const shape& in) const {
    if (in.rank() < 1)
      return diagnostic{
          "standard_scaler expects an input of at least {expected} dimensions, got {got} (input "
          "{input})",
          1, 0, in};
    if (!fits(num_features.value(), in.back()))
      return diagnostic{
          "standard_scaler expects num_features = {expected}, got {got} (input {input})",
          num_features.value(), in.back(), in};
    return in;
  }

  template <shape Input>
  constexpr auto become() const {
    return standard_scaler<Input.back()>{};
  }

  constexpr void bind(const shape_list& in) { num_features.bind(in[0].back()); }

  constexpr void bind_state(std::span<const shape>, std::span<const shape> buffers) {
    num_features.bind(buffers[0][0]);
  }

  constexpr std::array<buffer_spec, 2> buffers() const {
    const shape each{num_features.value()};
    return {buffer_spec{.name = "mean", .extents = each},
            buffer_spec{.name = "deviation", .extents = each, .init = initializer::constant(1)}};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    return in[0].numel();
  }

  void describe(description& d) const { d.add("num_features", num_features.value()); }

  template <class T>
  static std::array<double, 2> element_map(const T* const*, const std::byte* const* buffers,
                                           dim_t k) {
    const auto of = [&](int b) {
      return static_cast<double>(reinterpret_cast<const T*>(buffers[b])[k]);
    };
    return {1 / of(1), -of(0) / of(1)};
  }

  template <class T>
  void forward(const context<T>& c) const {
    const T *mean = c.buffer(0), *deviation = c.buffer(1);
    const dim_t n = c.input_shape().numel(), width = c.input_shape().back();
    const T* x = c.input();
    T* y = c.output();
    for (dim_t i = 0; i < n; i += width)
      for (dim_t k = 0; k < width; ++k) y[i + k] = (x[i + k] - mean[k]) / deviation[k];
  }

  template <class T>
  void backward(const context<T>& c) const {
    T* dx = c.input_gradient();
    if (dx == nullptr) return;
    const T *deviation = c.buffer(1), *dy = c.output_gradient();
    const dim_t n = c.input_shape().numel(), width = c.input_shape().back();
    for (dim_t i = 0; i < n; i += width)
      for (dim_t k = 0; k < width; ++k) dx[i + k] = dy[i + k] / deviation[k];
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// A standard_scaler whose number of features is inferred from the first input.
using lazy_standard_scaler = standard_scaler<lazy>;

/// Mean and standard deviation of each column.
template <class T, shape Columns>
struct column_statistics_of {
  tensor<T, Columns> mean, deviation;
};

/// Of the rows of x [..., F], the mean and the standard deviation (of the population) of each
/// element, as scikit-learn's StandardScaler: where all are equal, 1 for the deviation. Two passes,
/// in double. Allocates; O(elements).
template <tensor_like X>
auto column_statistics(const X& x) {
  using T = typename std::remove_cvref_t<X>::value_type;
  static_assert(std::is_floating_point_v<T>, "ikebana: column_statistics takes float or double");
  static_assert(X::static_shape.rank() >= 1,
                "ikebana: column_statistics takes a tensor of at least one dimension");
  const shape s = x.extents();
  const dim_t width = s.back(), n = s.numel();
  constexpr shape columns{X::static_shape.back()};
  column_statistics_of<T, columns> out{tensor<T, columns>(shape{width}),
                                       tensor<T, columns>(shape{width})};
  const auto rows = static_cast<double>(width == 0 || n == 0 ? 1 : n / width);
  for (dim_t k = 0; k < width; ++k) {
    double sum = 0, squares = 0;
    for (dim_t i = k; i < n; i += width) sum += static_cast<double>(x.data()[i]);
    const double mean = sum / rows;
    for (dim_t i = k; i < n; i += width) {
      const double apart = static_cast<double>(x.data()[i]) - mean;
      squares += apart * apart;
    }
    out.mean[k] = static_cast<T>(mean);
    const auto deviation = static_cast<T>(std::sqrt(squares / rows));
    out.deviation[k] = deviation > 0 ? deviation : T{1};
  }
  return out;
}

}  // namespace ikebana
