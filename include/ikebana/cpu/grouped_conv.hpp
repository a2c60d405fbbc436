#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/conv/table.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/targets.hpp"

#if IKEBANA_CPU_HERE
#include "ikebana/cpu/conv/depthwise.hpp"
#endif

IKEBANA_CPU_BEGIN_SMALL
/// The convolutions of conv.hpp by the algorithms of a set, which include those of groups of few
/// channels: others are not built.
namespace ikebana::cpu {

/// As conv_forward, by algorithms of `Set` (conv_set_for).
template <class T, conv_set Set = conv_set{}>
void grouped_conv_forward(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y,
                          const conv_epilogue<T>& then = {});
/// As conv_backward_data.
template <class T, conv_set Set = conv_set{}>
void grouped_conv_backward_data(const conv_geometry& g, const T* dy, const T* w, T* dx,
                                const T* bias = nullptr);
/// As conv_backward_weights.
template <class T, conv_set Set = conv_set{}>
void grouped_conv_backward_weights(const conv_geometry& g, const T* x, const T* dy, T* dw,
                                   bool accumulate);

#if IKEBANA_CPU_HERE
template <class T, conv_set Set>
void grouped_conv_forward(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y,
                          const conv_epilogue<T>& then) {
  if constexpr (Set.has(conv_algorithm::depthwise_lanes))
    if (detail::goes_by_groups(conv_direction::forward, g) &&
        detail::depthwise_forward<T, detail::depthwise_of(Set)>(g, x, w, bias, then, y))
      return;
  conv_forward<T>(g, x, w, bias, y, then, detail::forward_algorithms_for<T, Set>());
}
template <class T, conv_set Set>
void grouped_conv_backward_data(const conv_geometry& g, const T* dy, const T* w, T* dx,
                                const T* bias) {
  if constexpr (Set.has(conv_algorithm::depthwise_lanes))
    if (detail::goes_by_groups(conv_direction::data, g) &&
        detail::depthwise_backward_data<T, detail::depthwise_of(Set)>(g, dy, w, bias, dx))
      return;
  conv_backward_data<T>(g, dy, w, dx, bias, detail::data_algorithms_for<T, Set>());
}
template <class T, conv_set Set>
void grouped_conv_backward_weights(const conv_geometry& g, const T* x, const T* dy, T* dw,
                                   bool accumulate) {
  if constexpr (Set.has(conv_algorithm::depthwise_lanes))
    if (detail::goes_by_groups(conv_direction::weights, g) &&
        detail::depthwise_backward_weights<T, detail::depthwise_of(Set)>(g, x, dy, dw, accumulate))
      return;
  conv_backward_weights<T>(g, x, dy, dw, accumulate, detail::weights_algorithms_for<T, Set>());
}
#endif

IKEBANA_CPU_KERNEL(grouped_conv_forward)
IKEBANA_CPU_KERNEL(grouped_conv_backward_data)
IKEBANA_CPU_KERNEL(grouped_conv_backward_weights)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
