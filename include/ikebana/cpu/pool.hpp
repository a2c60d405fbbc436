#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/pool/averages.hpp"
#include "ikebana/cpu/pool/maxima.hpp"
#include "ikebana/cpu/pool/ways.hpp"
#include "ikebana/cpu/pool/windows.hpp"

/// Pooling with PyTorch's semantics. None throws, nor allocates but for the thread's packing
/// buffer, at its first use.
namespace ikebana::cpu {

/// y is the maximum of each window, not-a-number if any of it is; `indices`, where given, the place
/// of the maximum within its input plane (the first of equals). `ways` may lack those that the
/// caller knows not to be taken, so that their kernels need not be built.
template <class T>
void max_pool_forward(const pool_geometry& all, const T* x, T* y, std::int32_t* indices,
                      const detail::maximum_ways<T>& ways = detail::all_maximum_ways<T>) {
  detail::share_planes(all, [=, &ways](const pool_geometry& g, dim_t in, dim_t out) {
    std::int32_t* const places = indices == nullptr ? nullptr : indices + out;
    for (const detail::maximum_way<T> way : ways)
      if (way != nullptr && way(g, x + in, y + out, places)) return;
    detail::maxima_by_windows(g, x + in, y + out, places);
  });
}
/// Overwrites dx. `halving` is null where no windows are of two by two, as above.
template <class T>
void max_pool_backward(const pool_geometry& all, const T* dy, const std::int32_t* indices, T* dx,
                       detail::maximum_spread<T> halving = &detail::spread_maxima_by_halving<T>) {
  detail::share_planes(all, [=](const pool_geometry& g, dim_t in, dim_t out) {
    if (halving == nullptr || !halving(g, dy + out, indices + out, dx + in))
      detail::scatter_by_index(g.planes, g.input_plane(), g.output_plane(), dy + out, indices + out,
                               dx + in);
  });
}

/// Each window's sum divided by `divisor_override`, or where that is 0 by its size, with or without
/// the padding in it. Dilation is not read. `ways` as above.
template <class T>
void avg_pool_forward(const pool_geometry& all, const T* x, T* y, bool count_include_pad,
                      dim_t divisor_override,
                      const detail::average_ways<T>& ways = detail::all_average_ways<T>) {
  const T divisor =
      static_cast<T>(detail::common_divisor(all, count_include_pad, divisor_override));
  const T factor = divisor != T(0) ? T(1) / divisor : T(0);
  detail::share_planes(all, [=, &ways, &all](const pool_geometry& g, dim_t in, dim_t out) {
    if (!ways.run({g, x + in, y + out, factor, count_include_pad, all.planes}) &&
        ways.any != nullptr)
      ways.any(detail::windows_of(g), x + in, y + out, count_include_pad, divisor_override);
  });
}
/// Overwrites dx. `ways` as above.
template <class T>
void avg_pool_backward(const pool_geometry& all, const T* dy, T* dx, bool count_include_pad,
                       dim_t divisor_override,
                       const detail::average_ways<T>& ways = detail::all_spread_ways<T>) {
  const T divisor =
      static_cast<T>(detail::common_divisor(all, count_include_pad, divisor_override));
  detail::share_planes(all, [=, &ways, &all](const pool_geometry& g, dim_t in, dim_t out) {
    const T factor = divisor != T(0) ? T(1) / divisor : T(1);
    const detail::average_job<T> job{g, dy + out, dx + in, factor, count_include_pad, all.planes};
    const auto run = [&](const detail::average_job<T>& part) { return ways.run(part); };
    if (!(divisor != T(0) ? run(job) : detail::divided_apart(job, run)) && ways.any != nullptr)
      ways.any(detail::windows_of(g), dy + out, dx + in, count_include_pad, divisor_override);
  });
}

IKEBANA_CPU_KERNEL(max_pool_forward)
IKEBANA_CPU_KERNEL(max_pool_backward)
IKEBANA_CPU_KERNEL(avg_pool_forward)
IKEBANA_CPU_KERNEL(avg_pool_backward)

}  // namespace ikebana::cpu
