#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/round.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/causal_conv1d.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/detail/recurrent.hpp"
#include "ikebana/nn/linear.hpp"

namespace ikebana {

/// The numbers of 16 bits that weights are held in.
template <class X>
concept half_number = std::same_as<X, bfloat16> || std::same_as<X, float16>;

namespace detail {

template <class Leaf>
inline constexpr bool is_linear = false;
template <dim_t In, dim_t Out, class... Options>
inline constexpr bool is_linear<linear<In, Out, Options...>> = true;

/// Leaves whose time goes into products with their weights.
template <class Leaf>
inline constexpr bool multiplies_weights = is_linear<Leaf>;
template <std::size_t Spatial, dim_t In, dim_t Out, class... Options>
inline constexpr bool multiplies_weights<conv<Spatial, In, Out, Options...>> = true;
template <dim_t In, dim_t Out, class... Options>
inline constexpr bool multiplies_weights<causal_conv1d<In, Out, Options...>> = true;
template <class Family, dim_t In, dim_t Hidden, class... Options>
inline constexpr bool multiplies_weights<recurrent<Family, In, Hidden, Options...>> = true;

/// Rounds to the nearest, ties to even.
template <half_number Half, class T>
void to_halves(dim_t n, const T* x, std::uint16_t* y) {
  if constexpr (std::same_as<Half, bfloat16>)
    cpu::to_bf16<T>(n, x, y);
  else
    cpu::to_fp16<T>(n, x, y);
}
template <half_number Half, class T>
void from_halves(dim_t n, const std::uint16_t* x, T* y) {
  if constexpr (std::same_as<Half, bfloat16>)
    cpu::from_bf16<T>(n, x, y);
  else
    cpu::from_fp16<T>(n, x, y);
}

/// Of a parameter of these extents.
constexpr bool is_held_in_halves(const shape& extents) { return extents.rank() >= 2; }

}  // namespace detail

/// A leaf that `quantize<bfloat16>` or `quantize<float16>` made of another: its weights, parameters
/// of two dimensions and more, are numbers of 16 bits, which a call widens to planned memory of the
/// lane, a linear module a block of outputs at a time. Inputs, sums and biases are the model's
/// numbers. Buffers: the leaf's own, then its parameters by their names.
template <leaf_module Leaf, half_number Half>
struct half_weights : Leaf {
  static constexpr bool is_quantized = true;
  static constexpr bool is_stateful = detail::is_stateful<Leaf>();
  static constexpr bool is_layer = false;
  static constexpr bool takes_residual = false;
  static constexpr bool takes_slope = false;

  constexpr half_weights() = default;
  constexpr explicit half_weights(const Leaf& leaf) : Leaf(leaf) {}

  void parameters() const = delete;
  void with_bias() const = delete;

  constexpr auto buffers() const {
    std::array<buffer_spec, own_buffers + count> out{};
    if constexpr (own_buffers > 0) {
      const auto own = Leaf::buffers();
      for (std::size_t i = 0; i < own_buffers; ++i) out[i] = own[i];
    }
    const auto held = Leaf::parameters();
    for (std::size_t i = 0; i < count; ++i) {
      const shape& s = held[i].extents;
      buffer_spec& spec = out[own_buffers + i];
      spec.name = held[i].name;
      spec.changes = false;
      spec.extents = s;
      if (detail::is_held_in_halves(s)) {
        spec.type = std::same_as<Half, bfloat16> ? dtype::bfloat16 : dtype::float16;
        spec.follows_model = false;
      }
    }
    return out;
  }

  /// What the leaf saves, and its weights: of a linear module, a block of them.
  constexpr auto saved(const shape_list& in) const {
    std::array<saved_spec, own_saved + count> out{};
    if constexpr (own_saved > 0) {
      const auto own = Leaf::saved(in);
      for (std::size_t i = 0; i < own_saved; ++i) out[i] = own[i];
    }
    const auto held = Leaf::parameters();
    for (std::size_t i = 0; i < count; ++i) {
      out[own_saved + i].extents = shape{0};
      if (!detail::is_held_in_halves(held[i].extents)) continue;
      shape s = held[i].extents;
      if constexpr (detail::is_linear<Leaf>) {
        const dim_t width = in[0].back();
        s = shape{width < 0 ? dynamic : std::min(block(width), s[0]), width};
      }
      out[own_saved + i].extents = s;
    }
    return out;
  }

  constexpr void bind_state(std::span<const shape>, std::span<const shape> all) {
    Leaf::bind_state(all.subspan(own_buffers), all.first(own_buffers));
  }

  void describe(description& d) const {
    Leaf::describe(d);
    d.add("weights", std::string_view{std::same_as<Half, bfloat16> ? "bfloat16" : "float16"});
  }

  template <class T>
  void forward(context<T> c) const {
    if constexpr (detail::is_linear<Leaf>) {
      const dim_t in = c.input_shape().back(), outputs = c.output_shape().back();
      const dim_t rows = c.input_shape().numel(0, c.input_shape().rank() - 1);
      const dim_t step = block(in);
      const auto* const halves = c.template buffer<std::uint16_t>(own_buffers);
      T* const weights = c.template saved<T>(own_saved);
      for (dim_t o = 0; o < outputs; o += step) {
        const dim_t n = std::min(step, outputs - o);
        detail::from_halves<Half>(n * in, halves + o * in, weights);
        cpu::gemm<T>(
            cpu::transpose::no, cpu::transpose::yes, rows, n, in, T{1}, c.input(), in, weights, in,
            T{0}, c.output() + o, outputs,
            cpu::gemm_epilogue<T>{
                .bias = Leaf::has_bias ? c.template buffer<T>(own_buffers + 1) + o : nullptr,
                .function = c.function()},
            cpu::order_of_rows(cpu::transpose::no));
      }
    } else {
      std::array<T*, count> widened{};
      const auto held = Leaf::parameters();
      for (std::size_t i = 0; i < count; ++i) {
        const shape& s = held[i].extents;
        widened[i] = c.template buffer<T>(own_buffers + i);
        if (!detail::is_held_in_halves(s)) continue;
        widened[i] = c.template saved<T>(own_saved + i);
        detail::from_halves<Half>(s.numel(), c.template buffer<std::uint16_t>(own_buffers + i),
                                  widened[i]);
      }
      c.parameters = widened.data();
      c.stamp = 0;
      Leaf::forward(c);
    }
  }
  template <class T>
  void backward(const context<T>&) const {}

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static constexpr std::size_t count = detail::parameter_count<Leaf>();
  static constexpr std::size_t own_buffers = detail::buffer_count<Leaf>();
  static constexpr std::size_t own_saved = detail::saved_count<Leaf>();

  /// Outputs at a time: their weights stay in the second-level cache.
  static constexpr dim_t block(dim_t in) {
    return std::max<dim_t>(32768 / std::max<dim_t>(in, 1) / 16, 1) * 16;
  }
};

}  // namespace ikebana
