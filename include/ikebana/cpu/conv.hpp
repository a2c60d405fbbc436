#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/columns.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/picked.hpp"
#include "ikebana/cpu/conv/row_lanes.hpp"
#include "ikebana/cpu/conv/run.hpp"
#include "ikebana/cpu/conv/spread.hpp"
#include "ikebana/cpu/conv/way_costs.hpp"
#include "ikebana/cpu/conv/weights.hpp"
#include "ikebana/cpu/conv/winograd.hpp"
#include "ikebana/cpu/conv/winograd_weights.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/reduce.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

/// Convolutions, straight from bands of the image: no column buffer. All
/// allocate only the thread's packing buffer, at its first use, and give the
/// same bits for the same geometry and instruction set; an image's result does
/// not depend on the others of its batch, but where it has up to 8 positions.
/// Those of few positions or of one weight for each pair of channels, and images' gradients of few
/// channels or with strides, are matrix products and keep a second buffer. Those of 3x3 in float
/// may go by Winograd's way (exact_convolution.hpp), which keeps up to 40 MiB of a thread's for
/// weights, and, where channels are many and for the gradient of the weights, the second buffer for
/// tiles. Those of several groups: grouped_conv.hpp.
namespace ikebana::cpu {

namespace detail {
/// f(group) for every group, on several threads where there are several. One
/// group is divided by what computes it.
template <class F>
void share_groups(const conv_geometry& g, const conv_pass& pass, const F& f) {
  parallel_for(0, g.groups, grain_of(g.groups, g.groups * pass.multiply_adds()),
               [&](dim_t begin, dim_t end) {
                 for (dim_t group = begin; group < end; ++group) f(group);
               });
}
}  // namespace detail

/// y = function(scale conv(x, w) + bias + residual); scale, bias and residual
/// may be null. `winograd` is null where the caller knows that it is not the way, so that its
/// kernels need not be built.
template <class T>
void conv_forward(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y,
                  const conv_epilogue<T>& then = {},
                  detail::pass_way<T> winograd = &detail::run_winograd<T>) {
  const detail::conv_tiles<T>& tiles = IKEBANA_CPU_DISPATCH(tiles_for_conv<T>)();
  const detail::conv_pass pass = detail::forward_pass(g);
  const dim_t in_plane = conv_geometry::volume(g.in), plane = conv_geometry::volume(g.out);
  detail::share_groups(g, pass, [&](dim_t group) {
    if (detail::conv_columns<T> columns{tiles, g, group};
        columns.forward_pays() &&
        !(detail::row_lanes<T>::suits(pass) &&
          detail::row_lanes<T>{tiles, pass, {}}.pays(forward_cycles(columns))))
      return columns.forward(x, w, bias, y, then);
    const dim_t first = group * pass.results, at = first * plane;
    detail::run_pass<T>(tiles, pass, x + group * pass.sources * in_plane,
                        w + first * pass.weight_result, bias == nullptr ? nullptr : bias + first,
                        y + at,
                        {then.residual == nullptr ? nullptr : then.residual + at, then.function,
                         then.scale == nullptr ? nullptr : then.scale + first},
                        winograd);
  });
}
/// Overwrites dx. The transposed convolution of dy, which may have a bias for
/// each of x's channels.
template <class T>
void conv_backward_data(const conv_geometry& g, const T* dy, const T* w, T* dx,
                        const T* bias = nullptr,
                        detail::pass_way<T> winograd = &detail::run_winograd<T>) {
  const detail::conv_tiles<T>& tiles = IKEBANA_CPU_DISPATCH(tiles_for_conv<T>)();
  const dim_t in_plane = conv_geometry::volume(g.in), plane = conv_geometry::volume(g.out);
  const detail::conv_pass all = detail::forward_pass(g);
  const auto each_group = [&](const auto& f) {
    detail::share_groups(g, all, [&](dim_t group) {
      const dim_t first = group * all.sources;
      f(dy + group * all.results * plane, w + group * all.results * all.weight_result,
        bias == nullptr ? nullptr : bias + first, dx + first * in_plane);
    });
  };
  const bool strides = conv_geometry::volume(g.stride) > 1 && all.taps() > 1;
  const auto may_go_by_rows = [&](double cycles) {
    const dim_t weights = all.sources * all.results * all.taps();
    return detail::row_lanes<T>::may_pay(tiles, weights * plane, weights, all.sources, in_plane,
                                         cycles);
  };
  const auto by_rows = [&](double cycles) {
    if (!strides || !may_go_by_rows(cycles)) return false;
    detail::row_lanes<T> rows{tiles, g, {dy, w, bias, dx, {}, nullptr}};
    if (!rows.pays(cycles)) return false;
    each_group([&](const T* from, const T* weights, const T* start, T* to) {
      detail::row_lanes<T> mine = rows;
      mine.of = {from, weights, start, to, {}, nullptr};
      mine.run();
    });
    return true;
  };
  if (detail::conv_spread<T> spread{tiles, all}; spread.pays()) {
    if (by_rows(backward_data_cycles(spread))) return;
    return each_group([&](auto... operands) { spread.run(operands...); });
  }
  if (detail::conv_columns<T> columns{tiles, g, 0}; columns.backward_data_pays()) {
    if (by_rows(backward_data_cycles(columns))) return;
    return detail::share_groups(g, all, [&](dim_t group) {
      detail::conv_columns<T>{tiles, g, group}.backward_data(dy, w, dx, bias);
    });
  }
  if (detail::conv_picked<T>::suits(all))
    return each_group([&](const T* from, const T* weights, const T* start, T* to) {
      detail::conv_picked<T>{tiles, all}.backward_data(detail::backward_pass(g, {0, 0, 0}), from,
                                                       weights, start, to);
    });
  const auto each_pass = [&](const auto& f) {
    const auto part = [&](std::size_t d) { return std::min(g.in[d], g.stride[d]); };
    for (dim_t z = 0; z < part(0); ++z)
      for (dim_t y = 0; y < part(1); ++y)
        for (dim_t x = 0; x < part(2); ++x) {
          detail::conv_pass pass = detail::backward_pass(g, {z, y, x});
          if (pass.taps() == 0) continue;
          const dim_t source = detail::leave_unmet(pass);
          if (conv_geometry::volume(pass.to) > 0) f(pass, source);
        }
  };
  if (strides && may_go_by_rows(4000 + 3 * products_of(all, tiles.width))) {
    const detail::conv_pass first = detail::backward_pass(g, {0, 0, 0});
    double products = 0;
    each_pass(
        [&](const detail::conv_pass& pass, dim_t) { products += products_of(pass, tiles.width); });
    if (first.taps() > 0 &&
        by_rows(pass_cycles(tiles, first) * products / products_of(first, tiles.width)))
      return;
  }
  dim_t met = 0;
  each_pass([&](const detail::conv_pass& pass, dim_t) { met += conv_geometry::volume(pass.to); });
  if (met < in_plane)
    parallel_for(0, g.batch * g.in_channels, detail::rows_for_thread(in_plane),
                 [&](dim_t begin, dim_t end) {
                   for (dim_t i = begin; i < end; ++i) {
                     T* const to = dx + i * in_plane;
                     if (bias == nullptr)
                       tiles.clear(to, in_plane);
                     else
                       std::fill(to, to + in_plane, bias[i % g.in_channels]);
                   }
                 });
  each_pass([&](const detail::conv_pass& pass, dim_t source) {
    detail::share_groups(g, pass, [&](dim_t group) {
      const dim_t first = group * pass.results;
      detail::run_pass<T>(tiles, pass, dy + source + group * pass.sources * plane,
                          w + group * pass.sources * pass.weight_source,
                          bias == nullptr ? nullptr : bias + first, dx + first * in_plane, {},
                          winograd);
    });
  });
}
/// dw = (accumulate ? dw : 0) + the gradient of the weights. `winograd` as in conv_forward.
template <class T>
void conv_backward_weights(const conv_geometry& g, const T* x, const T* dy, T* dw, bool accumulate,
                           detail::weights_way<T> winograd = &detail::run_winograd_weights<T>) {
  const detail::conv_tiles<T>& tiles = IKEBANA_CPU_DISPATCH(tiles_for_conv<T>)();
  detail::share_groups(g, detail::forward_pass(g), [&](dim_t group) {
    detail::weights_gradient(tiles, g, group, x, dy, dw, accumulate, winograd);
  });
}
/// sums[c] = (accumulate ? sums[c] : 0) + the sum of channel c of x (batch,
/// channels, plane): the gradient of a bias.
template <class T>
void channel_sums(dim_t batch, dim_t channels, dim_t plane, const T* x, T* sums, bool accumulate) {
  detail::share_rows(channels, batch * plane, IKEBANA_CPU_DISPATCH(sum_planes<T>),
                     [=](auto* kernel, dim_t b, dim_t e) {
                       kernel(batch, channels, b, e, plane, x, sums, accumulate);
                     });
}
template <class T>
void conv_backward_bias(const conv_geometry& g, const T* dy, T* db, bool accumulate) {
  channel_sums<T>(g.batch, g.out_channels, conv_geometry::volume(g.out), dy, db, accumulate);
}

IKEBANA_CPU_KERNEL(conv_forward)
IKEBANA_CPU_KERNEL(conv_backward_data)
IKEBANA_CPU_KERNEL(conv_backward_weights)
IKEBANA_CPU_KERNEL(channel_sums)
IKEBANA_CPU_KERNEL(conv_backward_bias)

}  // namespace ikebana::cpu
