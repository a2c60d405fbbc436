#pragma once

// Which ways of pooling there are for which windows.

#include <array>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/pool/windows.hpp"

namespace ikebana::cpu {

/// What a caller knows of its windows before it has any planes: ways that these rule out need not
/// be built.
struct window_kind {
  std::array<dim_t, 3> kernel, stride, padding, dilation;
  bool ceils;
};

namespace detail {

/// Windows of two by two that share nothing.
template <class Windows>
constexpr bool is_two_by_two(const Windows& g) {
  for (std::size_t d = 0; d < 3; ++d) {
    const dim_t size = d == 0 ? 1 : 2;
    if (g.kernel[d] != size || g.stride[d] != size || g.padding[d] != 0) return false;
  }
  return g.dilation[1] == 1 && g.dilation[2] == 1;
}
constexpr bool is_halving(const pool_geometry& g) {
  return is_two_by_two(g) && g.out[0] <= g.in[0] && g.out[1] * 2 <= g.in[1] &&
         g.out[2] * 2 <= g.in[2];
}
constexpr bool always_halves(const window_kind& k) { return is_two_by_two(k) && !k.ceils; }

/// Windows that are each a whole plane.
constexpr bool is_global(const pool_geometry& g) {
  for (std::size_t d = 0; d < 3; ++d)
    if (g.out[d] != 1 || g.padding[d] != 0 || g.kernel[d] < g.in[d]) return false;
  return true;
}
/// Whether some may be, of which there is enough to gain.
constexpr bool may_be_global(const window_kind& k) {
  return k.padding == std::array<dim_t, 3>{0, 0, 0} && conv_geometry::volume(k.kernel) > 9;
}

/// Windows of three by three that are joined in registers.
template <class Windows>
constexpr bool is_three_by_three(const Windows& g) {
  return g.kernel == std::array<dim_t, 3>{1, 3, 3} && g.stride[0] == 1 && g.padding[0] == 0 &&
         g.padding[2] <= 1 && g.stride[1] == g.stride[2] && g.stride[1] <= 2;
}
template <class T>
constexpr bool is_by_threes(const pool_geometry& g) {
  return is_three_by_three(g) && static_cast<std::size_t>(g.in[2]) * sizeof(T) <= packed_b_bytes;
}

/// What all windows' sums are divided by; 0 where that differs.
constexpr dim_t common_divisor(const pool_geometry& g, bool count_include_pad,
                               dim_t divisor_override) {
  if (divisor_override != 0) return divisor_override;
  for (std::size_t d = 0; d < 3; ++d) {
    const dim_t end = (g.out[d] - 1) * g.stride[d] - g.padding[d] + g.kernel[d];
    if (end > g.in[d] + (count_include_pad ? g.padding[d] : 0)) return 0;
    if (!count_include_pad && g.padding[d] != 0) return 0;
  }
  return conv_geometry::volume(g.kernel);
}

/// The stride along rows that kernels are built for, strides beyond 4 being alike; 0, for any,
/// where kernels are built apart.
constexpr dim_t known_stride(const window_kind& k) {
  return !IKEBANA_CPU_HERE ? 0 : k.stride[2] <= 4 ? k.stride[2] : 5;
}

/// f(geometry, offset of the input, offset of the output) for parts of the planes.
template <class F>
void share_planes(const pool_geometry& g, const F& f) {
  const dim_t in = conv_geometry::volume(g.in), out = conv_geometry::volume(g.out),
              cost = in + out * conv_geometry::volume(g.kernel);
  if (g.planes * cost <= elements_for_thread || num_threads() <= 1) return f(g, 0, 0);
  const auto range = [&](dim_t begin, dim_t end) {
    pool_geometry part = g;
    part.planes = end - begin;
    f(part, begin * in, begin * out);
  };
  ikebana::detail::share_ranges<decltype(range)>(0, g.planes, rows_for_thread(cost), range);
}

}  // namespace detail
}  // namespace ikebana::cpu
