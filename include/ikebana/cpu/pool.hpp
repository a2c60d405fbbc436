#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"

namespace ikebana::cpu {

/// Pooling of `planes` (batch times channels) of three spatial extents each; fewer dimensions have
/// leading ones. Rounding up (ceil_mode) is a matter of `out` alone. Every window must hold at
/// least one element of the input.
struct pool_geometry {
  dim_t planes;
  std::array<dim_t, 3> in, out, kernel, stride, padding, dilation;
};

}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/pool-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/pool_average-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

/// Pooling with PyTorch's semantics. None throws, nor allocates but for the thread's packing
/// buffer, at its first use.
namespace ikebana::cpu {

/// y is the maximum of each window, not-a-number if any of it is; `indices`, where given, the place
/// of the maximum within its input plane (the first of equals).
template <class T>
void max_pool_forward(const pool_geometry& g, const T* x, T* y, std::int32_t* indices) {
  IKEBANA_CPU_DISPATCH(pool_maximum<T>)(g, x, y, indices);
}
/// Overwrites dx.
template <class T>
void max_pool_backward(const pool_geometry& g, const T* dy, const std::int32_t* indices, T* dx) {
  IKEBANA_CPU_DISPATCH(scatter_by_index<T>)
  (g.planes, g.in[0] * g.in[1] * g.in[2], g.out[0] * g.out[1] * g.out[2], dy, indices, dx);
}

/// Each window's sum divided by `divisor_override`, or where that is 0 by its size, with or without
/// the padding in it. Dilation is not read.
template <class T>
void avg_pool_forward(const pool_geometry& g, const T* x, T* y, bool count_include_pad,
                      dim_t divisor_override) {
  IKEBANA_CPU_DISPATCH(pool_average<T>)(g, x, y, count_include_pad, divisor_override);
}
/// Overwrites dx.
template <class T>
void avg_pool_backward(const pool_geometry& g, const T* dy, T* dx, bool count_include_pad,
                       dim_t divisor_override) {
  IKEBANA_CPU_DISPATCH(pool_average_backward<T>)(g, dy, dx, count_include_pad, divisor_override);
}

IKEBANA_CPU_KERNEL(max_pool_forward)
IKEBANA_CPU_KERNEL(max_pool_backward)
IKEBANA_CPU_KERNEL(avg_pool_forward)
IKEBANA_CPU_KERNEL(avg_pool_backward)

}  // namespace ikebana::cpu
