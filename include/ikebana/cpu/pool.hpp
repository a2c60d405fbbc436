#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/pool_ways.hpp"
#include "ikebana/cpu/pool_windows.hpp"

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
    if (places == nullptr ? !detail::maxima_alone(g, x + in, y + out)
                          : !detail::maxima_by_tiles<T>(g, x + in, y + out, places))
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
    if (detail::windows_by_rows(g, detail::row_work::average, divisor != T(0) ? factor : T(0),
                                count_include_pad, from, to))
      return;
    IKEBANA_CPU_DISPATCH(pool_average<T>)
    (detail::windows_of(g), from, to, count_include_pad, divisor_override);
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
    const T* const from = dy + out;
    T* const to = dx + in;
    const auto spread = [=](const pool_geometry& part, const T* given, T factor, T* result) {
      return detail::spread_averages(part, given, factor, result, convolution);
    };
    if (divisor != T(0) ? spread(g, from, T(1) / divisor, to)
                        : detail::divided_apart(g, count_include_pad, from, to, spread))
      return;
    IKEBANA_CPU_DISPATCH(pool_average_backward<T>)
    (detail::windows_of(g), from, to, count_include_pad, divisor_override);
  });
}

IKEBANA_CPU_KERNEL(max_pool_forward)
IKEBANA_CPU_KERNEL(max_pool_backward)
IKEBANA_CPU_KERNEL(avg_pool_forward)
IKEBANA_CPU_KERNEL(avg_pool_backward)

}  // namespace ikebana::cpu
