#pragma once

#include <cstddef>
#include <string_view>

#include "ikebana/cpu/pixel_shuffle.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

// Modules that only move elements. O(elements); no allocation.
namespace ikebana {

/// [..., C R^2, H, W] to [..., C, H R, W R] (Shi et al., Real-Time Single Image and Video
/// Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural Network, 2016).
template <dim_t R>
struct pixel_shuffle {
  static_assert(R >= 1, "ikebana: pixel_shuffle takes an upscale factor of at least 1");

  static constexpr std::string_view kind = "pixel_shuffle";
  static constexpr kept keeps = kept::nothing;

  constexpr inferred infer(const shape& in) const {
    const std::size_t rank = in.rank();
    if (rank < 3)
      return diagnostic{
          "pixel_shuffle expects an input of at least {expected} dimensions, got {got} (input "
          "{input})",
          3, static_cast<dim_t>(rank), in};
    const dim_t channels = in[rank - 3];
    if (channels >= 0 && channels % (R * R) != 0)
      return diagnostic{
          "pixel_shuffle expects channels divisible by the squared factor {expected}, got {got} "
          "(input {input})",
          R * R, channels, in};
    shape out = in;
    if (channels >= 0) out[rank - 3] = channels / (R * R);
    for (std::size_t d = rank - 2; d < rank; ++d)
      if (out[d] >= 0) out[d] *= R;
    return out;
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("upscale_factor", R); }

  template <class T>
  void forward(const context<T>& c) const {
    const shape& in = c.input_shape();
    const std::size_t rank = in.rank();
    cpu::pixel_shuffle<T>(in.numel(0, rank - 2) / (R * R), R, in[rank - 2], in[rank - 1], c.input(),
                          c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() == nullptr) return;
    const shape& in = c.input_shape();
    const std::size_t rank = in.rank();
    cpu::pixel_unshuffle<T>(in.numel(0, rank - 2) / (R * R), R, in[rank - 2], in[rank - 1],
                            c.output_gradient(), c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// [..., C, H R, W R] to [..., C R^2, H, W]: the inverse of pixel_shuffle.
template <dim_t R>
struct pixel_unshuffle {
  static_assert(R >= 1, "ikebana: pixel_unshuffle takes a downscale factor of at least 1");

  static constexpr std::string_view kind = "pixel_unshuffle";
  static constexpr kept keeps = kept::nothing;

  constexpr inferred infer(const shape& in) const {
    const std::size_t rank = in.rank();
    if (rank < 3)
      return diagnostic{
          "pixel_unshuffle expects an input of at least {expected} dimensions, got {got} (input "
          "{input})",
          3, static_cast<dim_t>(rank), in};
    shape out = in;
    if (in[rank - 3] >= 0) out[rank - 3] = in[rank - 3] * R * R;
    for (std::size_t d = rank - 2; d < rank; ++d) {
      if (out[d] < 0) continue;
      if (out[d] % R != 0)
        return diagnostic{
            "pixel_unshuffle expects a height and a width divisible by the factor {expected}, got "
            "{got} (input {input})",
            R, out[d], in};
      out[d] /= R;
    }
    return out;
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("downscale_factor", R); }

  template <class T>
  void forward(const context<T>& c) const {
    const shape& out = c.output_shape();
    const std::size_t rank = out.rank();
    cpu::pixel_unshuffle<T>(out.numel(0, rank - 2) / (R * R), R, out[rank - 2], out[rank - 1],
                            c.input(), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() == nullptr) return;
    const shape& out = c.output_shape();
    const std::size_t rank = out.rank();
    cpu::pixel_shuffle<T>(out.numel(0, rank - 2) / (R * R), R, out[rank - 2], out[rank - 1],
                          c.output_gradient(), c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// Deals the channels of [N, C, ...] out, so that those of each group of adjacent ones come to
/// stand Groups apart: channel g C / Groups + i becomes channel i Groups + g (Zhang et al.,
/// ShuffleNet, 2018).
template <dim_t Groups>
struct channel_shuffle {
  static_assert(Groups >= 1, "ikebana: channel_shuffle takes at least one group");

  static constexpr std::string_view kind = "channel_shuffle";
  static constexpr kept keeps = kept::nothing;

  constexpr inferred infer(const shape& in) const {
    if (in.rank() < 3)
      return diagnostic{
          "channel_shuffle expects an input of at least {expected} dimensions, got {got} (input "
          "{input})",
          3, static_cast<dim_t>(in.rank()), in};
    if (in[1] >= 0 && in[1] % Groups != 0)
      return diagnostic{
          "channel_shuffle expects channels divisible by groups = {expected}, got {got} (input "
          "{input})",
          Groups, in[1], in};
    return in;
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("groups", Groups); }

  template <class T>
  void forward(const context<T>& c) const {
    const shape& in = c.input_shape();
    cpu::swap_blocks<T>(in[0], Groups, in[1] / Groups, in.numel(2, in.rank()), c.input(),
                        c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() == nullptr) return;
    const shape& in = c.input_shape();
    cpu::swap_blocks<T>(in[0], in[1] / Groups, Groups, in.numel(2, in.rank()), c.output_gradient(),
                        c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace ikebana
