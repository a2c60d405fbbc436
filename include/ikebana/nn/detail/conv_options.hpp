#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/table.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana::detail {

/// The options that convolutions and transposed convolutions share, as numbers.
template <std::size_t Spatial, class... Options>
struct conv_options {
  static_assert(Spatial >= 1 && Spatial <= 3);
  using per_dimension = std::array<dim_t, Spatial>;

  static constexpr per_dimension kernel =
      spatial<Spatial, option_or<ikebana::kernel<1>, Options...>>();
  static constexpr per_dimension stride =
      spatial<Spatial, option_or<ikebana::stride<1>, Options...>>();
  static constexpr per_dimension padding =
      spatial<Spatial, option_or<ikebana::padding<0>, Options...>>();
  static constexpr per_dimension dilation =
      spatial<Spatial, option_or<ikebana::dilation<1>, Options...>>();
  static constexpr dim_t groups = option_or<ikebana::groups<1>, Options...>::value;
  static constexpr bool bias = option_or<ikebana::bias<true>, Options...>::value;

  static constexpr bool are_sane = all_at_least(kernel, 1) && all_at_least(stride, 1) &&
                                   all_at_least(dilation, 1) && groups >= 1;

  static constexpr dim_t taps = [] {
    dim_t n = 1;
    for (dim_t k : kernel) n *= k;
    return n;
  }();

  /// The extent of the dilated kernel in each dimension.
  static constexpr per_dimension reach = [] {
    per_dimension r{};
    for (std::size_t i = 0; i < Spatial; ++i) r[i] = detail::reach(kernel[i], dilation[i]);
    return r;
  }();

  /// The index of the channel dimension: 1, or 0 if unbatched.
  static constexpr std::size_t channel_dim(const shape& in) { return in.rank() - Spatial - 1; }
  static constexpr dim_t batch(const shape& in) { return in.rank() == Spatial + 2 ? in[0] : 1; }

  static constexpr cpu::conv_geometry geometry() {
    cpu::conv_geometry g{};
    g.groups = groups;
    g.kernel = in_three(kernel, 1);
    g.stride = in_three(stride, 1);
    g.padding = in_three(padding, 0);
    g.dilation = in_three(dilation, 1);
    return g;
  }

  /// Where a call keeps its plans, one for each direction.
  static constexpr std::size_t plan_end(cpu::conv_direction direction) {
    std::size_t end = 0;
    for (const auto d :
         {cpu::conv_direction::forward, cpu::conv_direction::data, cpu::conv_direction::weights})
      if (d <= direction) end += cpu::conv_plan_bytes(d, in_three(stride, 1));
    return end;
  }
  /// By which the last call in this direction ran.
  static const char* algorithm(std::span<const std::byte> plans, cpu::conv_direction direction) {
    const std::size_t size = cpu::conv_plan_bytes(direction, in_three(stride, 1));
    return cpu::kept_algorithm(plans.subspan(plan_end(direction) - size, size));
  }
  template <class T>
  static std::span<std::byte> plan(const context<T>& c, cpu::conv_direction direction) {
    const std::size_t size = cpu::conv_plan_bytes(direction, in_three(stride, 1));
    return c.plan(plan_end(direction) - size, size);
  }

  /// The algorithms that are built for so many channels; a negative count is unknown.
  template <class T>
  static constexpr cpu::conv_set needed(cpu::conv_direction direction, cpu::conv_geometry g,
                                        dim_t in_channels, dim_t out_channels) {
    g.in_channels = in_channels;
    g.out_channels = out_channels;
    return cpu::conv_set_for<T>(direction, g);
  }
};

/// The geometry of a convolution from `in` to `out`, with the kernel, strides and padding of
/// `like`.
[[gnu::noinline]] inline cpu::conv_geometry conv_between(const cpu::conv_geometry& like,
                                                         std::size_t spatial, const shape& in,
                                                         const shape& out) {
  cpu::conv_geometry g = like;
  const std::size_t c = in.rank() - spatial - 1;
  g.batch = c > 0 ? in[0] : 1;
  g.in_channels = in[c];
  g.out_channels = out[c];
  for (std::size_t d = 0; d < 3; ++d) {
    const bool is_one = d + spatial < 3;
    g.in[d] = is_one ? 1 : in[c + d + spatial - 2];
    g.out[d] = is_one ? 1 : out[c + d + spatial - 2];
  }
  return g;
}

/// Checks an input's rank and channels.
template <literal Name, std::size_t Spatial>
constexpr diagnostic check_conv_channels(const shape& in, dim_t in_channels, dim_t out_channels,
                                         dim_t groups) {
  if (in.rank() != Spatial + 1 && in.rank() != Spatial + 2)
    return {
        joined<Name, digit<Spatial>, "d expects an input of ", digit<Spatial + 1>,
               " (unbatched) or ", digit<Spatial + 2>, " dimensions, got {got} (input {input})">,
        Spatial + 2, static_cast<dim_t>(in.rank()), in};
  const dim_t given = in[in.rank() - Spatial - 1];
  if (!fits(in_channels, given))
    return {joined<Name, digit<Spatial>,
                   "d expects in_channels = {expected}, got {got} (input {input})">,
            in_channels, given, in};
  const dim_t channels = in_channels >= 0 ? in_channels : given;
  if (channels >= 0 && channels % groups != 0)
    return {joined<Name, digit<Spatial>,
                   "d expects in_channels divisible by groups = {expected}, got {got} (input "
                   "{input})">,
            groups, channels, in};
  if (out_channels % groups != 0)
    return {joined<Name, digit<Spatial>,
                   "d expects out_channels divisible by groups = {expected}, got {got} (input "
                   "{input})">,
            groups, out_channels, in};
  return {};
}

}  // namespace ikebana::detail
