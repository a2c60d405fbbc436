#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana::cpu::detail {

enum class lanes_of : unsigned char { forward, backward_data, backward_weights };

/// The ways of convolutions of few channels a group, a bit each. One that a caller's type rules out
/// need not be built.
namespace depthwise_way {
enum : unsigned {
  planes_by_1 = 1,  // kernels of 3x3, of stride 1 and 2
  planes_by_2 = 2,
  planes = planes_by_1 | planes_by_2,
  lanes = 4,  // whatever else there is
  all = planes | lanes,
};
}  // namespace depthwise_way

/// The ways for convolutions with the kernel, stride, padding, dilation and groups of `g`, and with
/// its channels, of which negative ones are not known.
constexpr unsigned depthwise_ways_of(const conv_geometry& g) {
  using namespace depthwise_way;
  // Where kernels are built apart, they are all there.
  if (!IKEBANA_CPU_HERE) return all;
  const auto differ = [&](dim_t channels) { return channels >= 0 && channels != g.groups; };
  const auto &k = g.kernel, &s = g.stride, &d = g.dilation;
  if (g.in_channels >= 0 && g.out_channels >= 0 &&
      g.in_channels / g.groups * (g.out_channels / g.groups) > 4)
    return 0;
  if (differ(g.in_channels) || differ(g.out_channels) || k[0] != 1 || g.padding[0] != 0)
    return lanes;
  unsigned ways = lanes;
  const bool whole = s[1] == 1 && s[2] == 1, halves = s[1] == 2 && s[2] == 2;
  const bool is_plain = d[1] == 1 && d[2] == 1;
  if (k[1] != 3 || k[2] != 3) return ways;
  if (whole) ways |= planes_by_1;
  if (halves && is_plain) ways |= planes_by_2;
  return ways;
}

}  // namespace ikebana::cpu::detail
