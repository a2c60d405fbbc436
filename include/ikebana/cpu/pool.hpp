#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/depthwise.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/pool_rows.hpp"
#include "ikebana/cpu/pool_tiles.hpp"
#include "ikebana/cpu/pool_windows.hpp"

namespace ikebana::cpu {

namespace detail {

/// Windows of two by two that share nothing.
constexpr bool is_halving(const pool_geometry& g) {
  for (std::size_t d = 0; d < 3; ++d) {
    const dim_t size = d == 0 ? 1 : 2;
    if (g.kernel[d] != size || g.stride[d] != size || g.padding[d] != 0 ||
        g.out[d] * size > g.in[d])
      return false;
  }
  return g.dilation[1] == 1 && g.dilation[2] == 1;
}

/// Windows that are each a whole plane.
constexpr bool is_global(const pool_geometry& g) {
  for (std::size_t d = 0; d < 3; ++d)
    if (g.out[d] != 1 || g.padding[d] != 0 || g.kernel[d] < g.in[d]) return false;
  return true;
}

}  // namespace detail
}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/pool-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

/// Maxima tile by tile. False, having done nothing, if a tile does not fit the scratch.
template <class T>
bool maxima_by_tiles(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  if (conv_geometry::volume(g.in) <= 0 || conv_geometry::volume(g.out) <= 0) return true;
  pool_geometry one = g;
  one.planes = 1;
  return maxima_of_windows(g, x, y, indices, [&](dim_t n) {
    const dim_t o = n * g.output_plane();
    maxima_by_windows(one, x + n * g.input_plane(), y + o,
                      indices == nullptr ? indices : indices + o);
  });
}

/// Maxima of windows of two by two that share nothing.
template <class T>
void maxima_by_halving(pool_geometry g, const T* x, T* y, std::int32_t* indices) {
  while (g.planes > 0) {
    const dim_t done = IKEBANA_CPU_DISPATCH(halve_by_maximum<T>)(g, x, y, indices);
    if (done == g.planes) return;
    x += done * g.input_plane();
    y += done * g.output_plane();
    if (indices != nullptr) indices += done * g.output_plane();
    pool_geometry one = g;
    one.planes = 1;
    maxima_by_windows(one, x, y, indices);
    x += g.input_plane();
    y += g.output_plane();
    if (indices != nullptr) indices += g.output_plane();
    g.planes -= done + 1;
  }
}

}  // namespace ikebana::cpu::detail

#define IKEBANA_CPU_BODY "ikebana/cpu/pool_average-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/pool_average_small-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

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

/// Windows that sums_by_threes takes.
template <class T>
constexpr bool is_by_threes(const pool_geometry& g) {
  return g.kernel == std::array<dim_t, 3>{1, 3, 3} && g.stride[0] == 1 && g.padding[0] == 0 &&
         g.padding[2] == 1 && g.stride[1] == g.stride[2] && g.stride[1] <= 2 &&
         static_cast<std::size_t>(g.in[2]) * sizeof(T) <= packed_b_bytes;
}

/// Whether average_by_convolution may take such windows, of planes as wide.
constexpr bool may_be_by_convolution(const std::array<dim_t, 3>& kernel,
                                     const std::array<dim_t, 3>& stride, dim_t width) {
  const auto is_fast = [&](dim_t k) { return k <= 3 || k == 5 || (k == 4 && width < 13); };
  return kernel[0] == 1 && kernel[1] != 1 && stride[1] <= 2 && stride[2] <= 2 &&
         is_fast(kernel[1]) && is_fast(kernel[2]);
}

/// Windows that overlap, as depthwise convolutions whose weights are all `factor`. False where
/// there is a faster way: those convolutions are fast by two, three and five, and on small planes.
template <class T>
bool average_by_convolution(const pool_geometry& p, bool backward, const T* source, T factor,
                            T* result) {
  constexpr dim_t most_taps = 25, most_groups = 16;
  const dim_t taps = conv_geometry::volume(p.kernel), in = conv_geometry::volume(p.in),
              out = conv_geometry::volume(p.out);
  if (in <= 0 || out <= 0 || !may_be_by_convolution(p.kernel, p.stride, p.in[2])) return false;
  T weights[most_taps * most_groups];
  for (dim_t i = 0; i < taps * most_groups; ++i) weights[i] = factor;
  for (dim_t done = 0; done < p.planes;) {
    const dim_t left = p.planes - done, groups = left < most_groups ? left : most_groups,
                batch = left / groups;
    const conv_geometry g{batch, groups,   groups,   groups,    p.in,
                          p.out, p.kernel, p.stride, p.padding, {1, 1, 1}};
    const T* const from = source + done * (backward ? out : in);
    T* const to = result + done * (backward ? in : out);
    if (!(backward ? depthwise_backward_data<T>(g, from, weights, nullptr, to)
                   : depthwise_forward<T>(g, from, weights, nullptr, {}, to)))
      return false;
    done += batch * groups;
  }
  return true;
}

template <class T>
using average_way = decltype(&average_by_convolution<T>);

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

}  // namespace ikebana::cpu::detail

/// Pooling with PyTorch's semantics. None throws, nor allocates but for the thread's packing
/// buffer, at its first use.
namespace ikebana::cpu {

/// y is the maximum of each window, not-a-number if any of it is; `indices`, where given, the place
/// of the maximum within its input plane (the first of equals).
template <class T>
void max_pool_forward(const pool_geometry& all, const T* x, T* y, std::int32_t* indices) {
  detail::share_planes(all, [=](const pool_geometry& g, dim_t in, dim_t out) {
    std::int32_t* const places = indices == nullptr ? nullptr : indices + out;
    if (detail::is_halving(g)) return detail::maxima_by_halving(g, x + in, y + out, places);
    if (detail::is_global(g))
      return IKEBANA_CPU_DISPATCH(maximum_of_planes<T>)(g.planes, g.input_plane(), x + in, y + out,
                                                        places);
    if (!detail::maxima_by_tiles<T>(g, x + in, y + out, places))
      detail::maxima_by_windows(g, x + in, y + out, places);
  });
}
/// Overwrites dx.
template <class T>
void max_pool_backward(const pool_geometry& all, const T* dy, const std::int32_t* indices, T* dx) {
  detail::share_planes(all, [=](const pool_geometry& g, dim_t in, dim_t out) {
    // A few elements a row are sooner written one by one.
    if (detail::is_halving(g) && g.out[2] >= 8)
      IKEBANA_CPU_DISPATCH(halve_backward<T>)(g, dy + out, indices + out, dx + in);
    else
      detail::scatter_by_index(g.planes, g.input_plane(), g.output_plane(), dy + out, indices + out,
                               dx + in);
  });
}

/// Each window's sum divided by `divisor_override`, or where that is 0 by its size, with or without
/// the padding in it. Dilation is not read. `convolution` is null where the caller knows that it is
/// not the way, so that its kernels need not be built.
template <class T>
void avg_pool_forward(const pool_geometry& all, const T* x, T* y, bool count_include_pad,
                      dim_t divisor_override,
                      detail::average_way<T> convolution = &detail::average_by_convolution<T>) {
  const T divisor =
      static_cast<T>(detail::common_divisor(all, count_include_pad, divisor_override));
  detail::share_planes(all, [=](const pool_geometry& g, dim_t in, dim_t out) {
    const T *const from = x + in, factor = T(1) / divisor;
    T* const to = y + out;
    if (detail::is_halving(g))
      return IKEBANA_CPU_DISPATCH(halve_by_average<T>)(g, from, factor, to);
    if (divisor != T(0)) {
      if (detail::is_global(g))
        return IKEBANA_CPU_DISPATCH(average_planes<T>)(g.planes, g.input_plane(), from, divisor,
                                                       to);
      if (detail::is_by_threes<T>(g))
        return IKEBANA_CPU_DISPATCH(sums_by_threes<T>)(g.planes * g.in[0], g.in[1], g.in[2],
                                                       g.out[1], g.out[2], g.stride[1],
                                                       g.padding[1], from, factor, to);
      if (convolution != nullptr && convolution(g, false, from, factor, to)) return;
    }
    if (detail::average_by_rows(g, false, divisor != T(0) ? factor : T(0), count_include_pad, from,
                                to))
      return;
    IKEBANA_CPU_DISPATCH(pool_average<T>)(g, from, to, count_include_pad, divisor_override);
  });
}
/// Overwrites dx. `convolution` as above.
template <class T>
void avg_pool_backward(const pool_geometry& all, const T* dy, T* dx, bool count_include_pad,
                       dim_t divisor_override,
                       detail::average_way<T> convolution = &detail::average_by_convolution<T>) {
  const T divisor =
      static_cast<T>(detail::common_divisor(all, count_include_pad, divisor_override));
  detail::share_planes(all, [=](const pool_geometry& g, dim_t in, dim_t out) {
    const T *const from = dy + out, factor = T(1) / divisor;
    T* const to = dx + in;
    if (detail::is_halving(g))
      return IKEBANA_CPU_DISPATCH(halve_by_average_backward<T>)(g, from, factor, to);
    if (divisor != T(0)) {
      if (detail::is_global(g))
        return IKEBANA_CPU_DISPATCH(average_planes_backward<T>)(g.planes, g.input_plane(), from,
                                                                factor, to);
      // Where no window is left out, its gradients' windows are as many.
      if (detail::is_by_threes<T>(g) && g.stride[1] == 1)
        return IKEBANA_CPU_DISPATCH(sums_by_threes<T>)(g.planes * g.in[0], g.out[1], g.out[2],
                                                       g.in[1], g.in[2], 1, 2 - g.padding[1], from,
                                                       factor, to);
      if (convolution != nullptr && convolution(g, true, from, factor, to)) return;
      if (detail::average_by_rows(g, true, factor, count_include_pad, from, to)) return;
    }
    IKEBANA_CPU_DISPATCH(pool_average_backward<T>)
    (g, from, to, count_include_pad, divisor_override);
  });
}

IKEBANA_CPU_KERNEL(max_pool_forward)
IKEBANA_CPU_KERNEL(max_pool_backward)
IKEBANA_CPU_KERNEL(avg_pool_forward)
IKEBANA_CPU_KERNEL(avg_pool_backward)

}  // namespace ikebana::cpu
