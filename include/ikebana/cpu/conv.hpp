#pragma once

#include <algorithm>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/columns.hpp"
#include "ikebana/cpu/conv/conv_ways.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/run.hpp"
#include "ikebana/cpu/conv/ways.hpp"
#include "ikebana/cpu/conv/weights.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/reduce.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

/// Convolutions, straight from bands of the image: no column buffer. All
/// allocate only the thread's packing buffer, at its first use, and give the
/// same bits for the same geometry and instruction set, whatever the caches and
/// the number of threads; an image's result does not depend on the others of its
/// batch.
/// Those of few positions or of one weight for each pair of channels, and images' gradients of few
/// channels or with strides, are matrix products and keep a second buffer. Those of 3x3 in float
/// may go by Winograd's way (exact_convolution.hpp), which keeps up to 40 MiB of a thread's for
/// weights, and, where channels are many and for the gradient of the weights, the second buffer for
/// tiles. Those of several groups: grouped_conv.hpp.
namespace ikebana::cpu {

/// y = function(scale conv(x, w) + bias + residual); scale, bias and residual
/// may be null. `ways` are those that the caller's geometries may take (conv_needs), so that the
/// kernels of others need not be built.
template <class T>
void conv_forward(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y,
                  const conv_epilogue<T>& then = {},
                  const detail::pass_ways<T>& ways = detail::all_pass_ways<T>()) {
  if (g.batch == 0) return;
  const detail::conv_tiles<T>& tiles = ways.tiles();
  const detail::conv_pass pass = detail::forward_pass(g);
  const dim_t in_plane = conv_geometry::volume(g.in), plane = conv_geometry::volume(g.out);
  detail::share_groups(g.groups, pass.multiply_adds(), [&](dim_t group) {
    if (detail::conv_columns<T> columns{tiles, pass, group}; columns.forward_pays())
      return columns.forward(x, w, bias, y, then);
    const dim_t first = group * pass.results, at = first * plane;
    detail::run_pass<T>(ways, tiles, pass, x + group * pass.sources * in_plane,
                        w + first * pass.weight_result, bias == nullptr ? nullptr : bias + first,
                        y + at,
                        {then.residual == nullptr ? nullptr : then.residual + at, then.function,
                         then.scale == nullptr ? nullptr : then.scale + first});
  });
}
/// Overwrites dx. The transposed convolution of dy, which may have a bias for
/// each of x's channels.
template <class T>
void conv_backward_data(const conv_geometry& g, const T* dy, const T* w, T* dx,
                        const T* bias = nullptr,
                        const detail::data_ways<T>& ways = detail::all_data_ways<T>()) {
  if (g.batch == 0) return;
  const detail::conv_tiles<T>& tiles = ways.pass->tiles();
  const dim_t in_plane = conv_geometry::volume(g.in), plane = conv_geometry::volume(g.out);
  const detail::conv_pass all = detail::forward_pass(g);
  const detail::data_job<T> job{tiles, g, all, dy, w, bias, dx};
  if (ways.spread != nullptr && ways.spread(job)) return;
  if (detail::conv_columns<T> columns{tiles, all, 0}; columns.backward_data_pays()) {
    return detail::share_groups(g.groups, all.multiply_adds(), [&](dim_t group) {
      detail::conv_columns<T>{tiles, all, group}.backward_data(dy, w, dx, bias);
    });
  }
  dim_t met = 0;
  detail::each_pass(
      g, [&](const detail::conv_pass& pass, dim_t) { met += conv_geometry::volume(pass.to); });
  if (met < in_plane)
    detail::share_parts(g.batch * g.in_channels, detail::rows_for_thread(in_plane),
                        [&](dim_t begin, dim_t end) {
                          for (dim_t i = begin; i < end; ++i)
                            if (T* const to = dx + i * in_plane; bias == nullptr)
                              tiles.clear(to, in_plane);
                            else
                              tiles.fill_rows(1, in_plane, bias + i % g.in_channels, to, 0);
                        });
  // What all passes write in turn stays in the second level of the cache.
  const detail::data_blocks blocks{g, static_cast<dim_t>(sizeof(T))};
  for (dim_t i = 0; i < g.batch; i += blocks.images)
    for (dim_t r = 0; r < all.sources; r += blocks.results)
      detail::each_pass(g, [&](detail::conv_pass pass, dim_t source) {
        pass.batch = std::min(g.batch - i, blocks.images);
        pass.results = std::min(all.sources - r, blocks.results);
        detail::share_groups(g.groups, pass.multiply_adds(), [&](dim_t group) {
          const dim_t first = group * all.sources + r;
          detail::run_pass<T>(
              *ways.pass, tiles, pass,
              dy + i * pass.source_image + source + group * pass.sources * plane,
              w + group * pass.sources * pass.weight_source + r * pass.weight_result,
              bias == nullptr ? nullptr : bias + first,
              dx + i * pass.result_image + first * in_plane, {});
        });
      });
}
/// dw = (accumulate ? dw : 0) + the gradient of the weights.
template <class T>
void conv_backward_weights(const conv_geometry& g, const T* x, const T* dy, T* dw, bool accumulate,
                           const detail::weights_ways<T>& ways = detail::all_weights_ways<T>()) {
  const detail::conv_tiles<T>& tiles = ways.tiles();
  const detail::conv_pass pass = detail::forward_pass(g);
  if (g.batch == 0) {
    if (!accumulate) tiles.clear(dw, g.groups * pass.results * pass.sources * pass.taps());
    return;
  }
  detail::share_groups(g.groups, pass.multiply_adds(), [&](dim_t group) {
    detail::weights_gradient(ways, tiles, pass, group, x, dy, dw, accumulate);
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
