#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/conv_ways.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/targets.hpp"

// What a caller that knows its kernels, strides and channels hands to conv.hpp.
namespace ikebana::cpu::detail {

/// The bytes of the narrowest registers that kernels are built for here.
inline constexpr dim_t narrowest_register = IKEBANA_CPU_X86 && !IKEBANA_CPU_SSE42 ? 32 : 16;

/// The channels of each group that one direction reads and writes; negative where unknown.
struct conv_channels {
  dim_t sources, results;
};

/// What convolutions of a kernel, strides, dilation and padding need in one direction. Of g,
/// nothing else is read.
template <class T>
constexpr conv_needs needs_of(const conv_geometry& g, conv_channels c) {
  constexpr dim_t width = narrowest_register / static_cast<dim_t>(sizeof(T));
  const auto may_be = [](dim_t n, dim_t least) { return n < 0 || n >= least; };
  const bool strides = conv_geometry::volume(g.stride) > 1;
  conv_needs n{};
  n.ones = conv_geometry::volume(g.kernel) == 1;
  n.walks = !n.ones || strides || g.padding[0] != 0 || g.padding[1] != 0 || g.padding[2] != 0;
  n.strides = strides;
  n.thirds = g.stride[2] == 3;
  n.many = may_be(c.results, many_results);
  n.deep = may_be(c.sources, width);
  n.handed = strides || ((c.results < 16) && may_be(c.sources, 24));
  const bool suits = g.kernel[0] == 1 && g.kernel[1] == 3 && g.kernel[2] == 3 && g.stride[1] == 1 &&
                     g.stride[2] == 1 && g.dilation[1] == 1 && g.dilation[2] == 1;
  n.winograd = suits && may_be(c.sources, 16) && may_be(c.results, 16);
  n.winograd_weights = suits && may_be(c.sources, 8) && may_be(c.results, 12);
  return n;
}

/// The ways for what is needed. Programs that take their kernels from elsewhere have them all.
template <class T, conv_needs Needs>
const pass_ways<T>& ways_forward() {
#if IKEBANA_CPU_HERE
  return pass_ways_for<T, Needs>;
#else
  return all_pass_ways<T>();
#endif
}
template <class T, conv_needs Needs>
const data_ways<T>& ways_to_data() {
#if IKEBANA_CPU_HERE
  return data_ways_for<T, Needs>;
#else
  return all_data_ways<T>();
#endif
}
template <class T, conv_needs Needs>
const weights_ways<T>& ways_to_weights() {
#if IKEBANA_CPU_HERE
  return weights_ways_for<T, Needs>;
#else
  return all_weights_ways<T>();
#endif
}

}  // namespace ikebana::cpu::detail
