#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/conv/depthwise/ways.hpp"
#include "ikebana/cpu/conv/table.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/targets.hpp"

#if IKEBANA_CPU_HERE
#include "ikebana/cpu/conv/depthwise.hpp"
#endif

/// The same convolutions for those of several groups, which may be of few channels each: kernels
/// of their own, that other networks need not build.
namespace ikebana::cpu {

/// As conv_forward. Ways among `Ways` are taken (conv/depthwise/ways.hpp), and no others built; 0
/// where channels that meet are surely many. `others` are those of conv_forward.
template <class T, unsigned Ways = detail::depthwise_way::all>
void grouped_conv_forward(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y,
                          const conv_epilogue<T>& then = {},
                          const detail::conv_table<T>& others = detail::forward_algorithms<T>());
/// As conv_backward_data.
template <class T, unsigned Ways = detail::depthwise_way::all>
void grouped_conv_backward_data(const conv_geometry& g, const T* dy, const T* w, T* dx,
                                const T* bias = nullptr,
                                const detail::conv_table<T>& others = detail::data_algorithms<T>());
/// As conv_backward_weights.
template <class T, unsigned Ways = detail::depthwise_way::all>
void grouped_conv_backward_weights(
    const conv_geometry& g, const T* x, const T* dy, T* dw, bool accumulate,
    const detail::weights_table<T>& others = detail::weights_algorithms<T>());

#if IKEBANA_CPU_HERE
template <class T, unsigned Ways>
void grouped_conv_forward(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y,
                          const conv_epilogue<T>& then, const detail::conv_table<T>& others) {
  if constexpr (Ways != 0)
    if (detail::may_be_by_channel(g) && detail::depthwise_forward<T, Ways>(g, x, w, bias, then, y))
      return;
  conv_forward<T>(g, x, w, bias, y, then, others);
}
template <class T, unsigned Ways>
void grouped_conv_backward_data(const conv_geometry& g, const T* dy, const T* w, T* dx,
                                const T* bias, const detail::conv_table<T>& others) {
  if constexpr (Ways != 0)
    if (detail::may_be_by_channel(g) &&
        detail::depthwise_backward_data<T, Ways>(g, dy, w, bias, dx))
      return;
  conv_backward_data<T>(g, dy, w, dx, bias, others);
}
template <class T, unsigned Ways>
void grouped_conv_backward_weights(const conv_geometry& g, const T* x, const T* dy, T* dw,
                                   bool accumulate, const detail::weights_table<T>& others) {
  if constexpr (Ways != 0)
    if (detail::may_be_by_channel(g) &&
        detail::depthwise_backward_weights<T, Ways>(g, x, dy, dw, accumulate))
      return;
  conv_backward_weights<T>(g, x, dy, dw, accumulate, others);
}
#endif

IKEBANA_CPU_KERNEL(grouped_conv_forward)
IKEBANA_CPU_KERNEL(grouped_conv_backward_data)
IKEBANA_CPU_KERNEL(grouped_conv_backward_weights)

}  // namespace ikebana::cpu
