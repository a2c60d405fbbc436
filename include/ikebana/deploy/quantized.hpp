#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/gemm_int8.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/detail/conv_options.hpp"
#include "ikebana/nn/linear.hpp"

namespace ikebana {

namespace detail {

/// What bytes of an input stand for: scale (byte - zero).
struct byte_range {
  float scale = 1;
  std::int32_t zero = 0;

  /// Of numbers from `least` to `most`. 0 is exact, so that padding is.
  static byte_range of(float least, float most) {
    const double low = std::min(least, 0.0f), high = std::max(most, 0.0f);
    const double step = (high - low) / 255;
    if (!(step >= std::numeric_limits<float>::min()) || !std::isfinite(step)) return {};
    return {static_cast<float>(step), static_cast<std::int32_t>(std::lround(-low / step))};
  }
};

/// To the nearest byte; what is out of range becomes its end, not-a-number the lower one.
inline void to_bytes(dim_t n, byte_range r, const float* x, std::uint8_t* y) {
  const float factor = 1 / r.scale, offset = static_cast<float>(r.zero) + 0.5f;
  for (dim_t i = 0; i < n; ++i) {
    const float v = x[i] * factor + offset;
    y[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(v > 0 ? v < 255 ? v : 255.0f : 0));
  }
}

/// The weights of each output become numbers from -127 to 127, and a scale.
inline void quantize_weights(dim_t outputs, dim_t each, const float* w, std::int8_t* to,
                             float* scales) {
  for (dim_t o = 0; o < outputs; ++o, w += each, to += each) {
    float most = 0;
    for (dim_t i = 0; i < each; ++i) most = std::max(most, std::abs(w[i]));
    const float scale = most / 127 >= std::numeric_limits<float>::min() ? most / 127 : 1.0f;
    scales[o] = scale;
    for (dim_t i = 0; i < each; ++i)
      to[i] = static_cast<std::int8_t>(std::clamp<long>(std::lround(w[i] / scale), -127, 127));
  }
}

/// The part that all quantised leaves have: their buffers.
template <leaf_module Leaf>
struct quantized_base : Leaf {
  static constexpr bool is_quantized = true;
  static constexpr bool is_stateful = false;
  static constexpr bool is_layer = false;
  static constexpr bool takes_norm = false;
  static constexpr bool takes_residual = false;
  static constexpr bool takes_slope = false;
  static constexpr kept keeps = kept::nothing;

  constexpr quantized_base() = default;
  constexpr explicit quantized_base(const Leaf& leaf) : Leaf(leaf) {}

  void parameters() const = delete;
  void with_bias() const = delete;

  constexpr std::array<buffer_spec, 4> buffers() const {
    const shape weight = Leaf::parameters()[0].extents;
    const auto numbers = [](const char* name, const shape& extents) {
      return buffer_spec{
          .name = name, .extents = extents, .follows_model = false, .changes = false};
    };
    buffer_spec bytes = numbers("weight", weight);
    bytes.type = dtype::int8;
    return {bytes, numbers("scale", shape{weight[0]}), numbers("bias", shape{weight[0]}),
            numbers("input", shape{2})};
  }

  constexpr void bind_state(std::span<const shape>, std::span<const shape> all) {
    Leaf::bind_state(all, {});
  }

  /// Allocates what products of bytes need of the calling thread.
  static void prepare_thread() { cpu::prepare_gemm_int8(); }

  void describe(description& d) const {
    Leaf::describe(d);
    d.add("int8", true);
  }

  void backward(const context<float>&) const {}

 protected:
  static byte_range range(const context<float>& c) {
    const float* r = c.template buffer<float>(3);
    return {r[0], static_cast<std::int32_t>(r[1])};
  }
  /// For outputs from `first` on.
  static cpu::quantization scaling(const context<float>& c, dim_t first) {
    const byte_range r = range(c);
    return {.a_scale = r.scale,
            .a_zero = r.zero,
            .b_scale = c.template buffer<float>(1) + first,
            .per_column = true,
            .bias = c.template buffer<float>(2) + first,
            .function = c.function()};
  }
  static const std::int8_t* weights(const context<float>& c) {
    return c.template buffer<std::int8_t>(0);
  }
};

}  // namespace detail

/// A leaf that `quantize` made of another: its weights are bytes with a scale for each output, its
/// input is rounded to bytes of the calibrated range on its way into the product, whose sums are
/// integers, the same on every machine; the result is scaled, gets the bias, and is a float again.
/// Buffers: weight (as the leaf's, in bytes), scale and bias (outputs), input (scale, zero point).
/// As PyTorch's static quantisation with a per-channel symmetric weight observer and a min-max
/// observer of inputs.
template <leaf_module Leaf>
struct quantized;

template <dim_t In, dim_t Out, class... Options>
struct quantized<linear<In, Out, Options...>>
    : detail::quantized_base<linear<In, Out, Options...>> {
  using detail::quantized_base<linear<In, Out, Options...>>::quantized_base;

  /// The input in bytes.
  constexpr std::array<saved_spec, 1> saved(const shape_list& in) const {
    return {saved_spec{1, in[0]}};
  }

  void forward(const context<float>& c) const {
    const dim_t in = c.input_shape().back(), n = c.input_shape().numel();
    const dim_t rows = c.input_shape().numel(0, c.input_shape().rank() - 1);
    auto* const bytes = c.template saved<std::uint8_t>(0);
    detail::to_bytes(n, this->range(c), c.input(), bytes);
    cpu::gemm_int8(cpu::transpose::no, cpu::transpose::yes, rows, Out, in, bytes, in,
                   this->weights(c), in, c.output(), Out, this->scaling(c, 0));
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

template <std::size_t Spatial, dim_t In, dim_t Out, class... Options>
requires(conv<Spatial, In, Out,
              Options...>::is_zeros) struct quantized<conv<Spatial, In, Out, Options...>>
    : detail::quantized_base<conv<Spatial, In, Out, Options...>> {
 private:
  using leaf = conv<Spatial, In, Out, Options...>;

 public:
  using detail::quantized_base<leaf>::quantized_base;

  /// One image in bytes, padded; what a block of positions reads; their results.
  constexpr std::array<saved_spec, 3> saved(const shape_list& in) const {
    const dim_t positions = block(in[0]);
    dim_t image = 1;
    for (std::size_t d = leaf::options::channel_dim(in[0]); d < in[0].rank(); ++d)
      if (in[0][d] < 0) image = dynamic;
    if (image > 0)
      image = in[0][leaf::options::channel_dim(in[0])] *
              cpu::conv_geometry::volume(padded(detail::spatial_extents<Spatial>(in[0])));
    return {saved_spec{1, shape{image}},
            saved_spec{1, shape{positions < 0 ? dynamic : positions * depth(in[0])}},
            saved_spec{0, shape{positions < 0 ? dynamic : positions * outputs}}};
  }

  void forward(const context<float>& c) const {
    const shape& in = c.input_shape();
    const cpu::conv_geometry g = detail::conv_between(like, Spatial, in, c.output_shape());
    const dim_t image = g.in_channels * g.volume(g.in), points = g.volume(g.out);
    if (points == 0 || g.batch == 0) return;
    const std::array<dim_t, 3> extents = padded(g.in);
    const dim_t step = block(in), k = depth(in);
    auto* const bytes = c.template saved<std::uint8_t>(0);
    auto* const read = c.template saved<std::uint8_t>(1);
    float* const tile = c.template saved<float>(2);
    const dim_t each = g.in_channels / g.groups * g.volume(extents);
    for (dim_t n = 0; n < g.batch; ++n) {
      pad(g, extents, this->range(c), c.input() + n * image, bytes);
      for (dim_t group = 0; group < g.groups; ++group)
        for (dim_t p = 0; p < points; p += step) {
          const dim_t count = std::min(step, points - p);
          gather(g, extents, bytes + group * each, p, count, read);
          cpu::gemm_int8(cpu::transpose::no, cpu::transpose::yes, count, outputs, k, read, k,
                         this->weights(c) + group * outputs * k, k, tile, outputs,
                         this->scaling(c, group * outputs));
          float* const y = c.output() + (n * Out + group * outputs) * points + p;
          for (dim_t o = 0; o < outputs; ++o)
            for (dim_t i = 0; i < count; ++i) y[o * points + i] = tile[i * outputs + o];
        }
    }
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static constexpr dim_t outputs = Out / leaf::options::groups;

  static constexpr dim_t depth(const shape& in) {
    return in[leaf::options::channel_dim(in)] / leaf::options::groups * leaf::options::taps;
  }
  /// Positions at a time: what they read stays in the first-level cache.
  static constexpr dim_t block(const shape& in) {
    if (in[leaf::options::channel_dim(in)] < 0) return dynamic;
    return std::clamp<dim_t>(16384 / std::max<dim_t>(depth(in), 1), 8, 256);
  }

  static constexpr cpu::conv_geometry like = [] {
    cpu::conv_geometry g = leaf::options::geometry();
    g.padding = detail::in_three(leaf::pads_before, 0);
    return g;
  }();

  static constexpr std::array<dim_t, 3> padded(std::array<dim_t, 3> extents) {
    const auto after = detail::in_three(leaf::pads_after, 0);
    for (std::size_t d = 0; d < 3; ++d) extents[d] += like.padding[d] + after[d];
    return extents;
  }

  /// An image in bytes, with its padding.
  static void pad(const cpu::conv_geometry& g, const std::array<dim_t, 3>& extents,
                  detail::byte_range range, const float* x, std::uint8_t* to) {
    const dim_t sheet = extents[1] * extents[2], plane = extents[0] * sheet;
    std::memset(to, range.zero, static_cast<std::size_t>(g.in_channels * plane));
    to += like.padding[0] * sheet + like.padding[1] * extents[2] + like.padding[2];
    for (dim_t c = 0; c < g.in_channels; ++c)
      for (dim_t i = 0; i < g.in[0]; ++i)
        for (dim_t j = 0; j < g.in[1]; ++j, x += g.in[2])
          detail::to_bytes(g.in[2], range, x, to + c * plane + i * sheet + j * extents[2]);
  }

  /// What `count` positions from `first` on read of the channels of a group, of a padded image.
  static void gather(const cpu::conv_geometry& g, const std::array<dim_t, 3>& extents,
                     const std::uint8_t* x, dim_t first, dim_t count, std::uint8_t* to) {
    const dim_t channels = g.in_channels / g.groups, line = extents[2];
    const dim_t sheet = extents[1] * line, plane = extents[0] * sheet;
    std::array<dim_t, 3> at{first / (g.out[1] * g.out[2]), first / g.out[2] % g.out[1],
                            first % g.out[2]};
    for (dim_t p = 0; p < count; ++p) {
      const std::uint8_t* const begin = x + at[0] * like.stride[0] * sheet +
                                        at[1] * like.stride[1] * line + at[2] * like.stride[2];
      for (dim_t c = 0; c < channels; ++c)
        for (dim_t a = 0; a < like.kernel[0]; ++a)
          for (dim_t b = 0; b < like.kernel[1]; ++b) {
            const std::uint8_t* const row =
                begin + c * plane + a * like.dilation[0] * sheet + b * like.dilation[1] * line;
            if constexpr (like.dilation[2] == 1)
              std::memcpy(to, row, static_cast<std::size_t>(like.kernel[2]));
            else
              for (dim_t e = 0; e < like.kernel[2]; ++e) to[e] = row[e * like.dilation[2]];
            to += like.kernel[2];
          }
      if (++at[2] < g.out[2]) continue;
      at[2] = 0;
      if (++at[1] < g.out[1]) continue;
      at[1] = 0;
      ++at[0];
    }
  }
};

}  // namespace ikebana
