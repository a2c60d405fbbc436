#pragma once

#include <algorithm>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/print_plan.hpp"
#include "ikebana/cpu/conv/table.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/exact_convolution.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/cpu/verbose.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
// How conv.hpp's functions run the algorithms of their tables. Units that take their kernels from
// elsewhere do not read it.
namespace ikebana::cpu {

namespace detail {

/// Runs the first algorithm of the table that applies to p and has memory for it; prints a line
/// about it, if wanted (verbose.hpp) and this is the first `part` of a call.
template <class Table, class... Args>
void run_first(const Table& table, const conv_problem& p, dim_t part, const Args&... args) {
  for (const conv_algorithm a : conv_algorithms)
    if (const auto run = table.run[static_cast<int>(a)];
        run != nullptr && applies(a, p) && run(table, args...)) {
      if (part == 0 && is_verbose()) [[unlikely]]
        print_plan(p, name(a));
      return;
    }
}

template <class T>
conv_problem planned(conv_direction direction, const conv_geometry& g, const conv_tiles<T>& tiles) {
  conv_problem p = problem_of(direction, g, dim_t{sizeof(T)}, tiles.width);
  p.exact = exact_convolution();
  return p;
}
template <class T>
conv_problem planned(const conv_pass& pass, const conv_tiles<T>& tiles) {
  return {conv_direction::forward,
          pass.batch,
          pass.sources,
          pass.all_results,
          pass.met,
          pass.to,
          pass.kernel,
          pass.stride,
          pass.padding,
          pass.dilation,
          dim_t{sizeof(T)},
          tiles.width,
          !pass.unit_step() || pass.to != pass.whole,
          true,
          exact_convolution()};
}

/// Gives the positions of dx that no pass writes their bias, or 0.
template <class T>
void fill_unmet(const conv_geometry& g, const conv_tiles<T>& tiles, const T* bias, T* dx) {
  const dim_t plane = conv_geometry::volume(g.in);
  dim_t met = 0;
  each_pass(g, [&](const conv_pass& pass, dim_t) { met += conv_geometry::volume(pass.to); });
  if (met == plane) return;
  share_parts(g.batch * g.in_channels, rows_for_thread(plane), [&](dim_t begin, dim_t end) {
    for (dim_t i = begin; i < end; ++i)
      if (T* const to = dx + i * plane; bias == nullptr)
        tiles.clear(to, plane);
      else
        tiles.fill_rows(1, plane, bias + i % g.in_channels, to, 0);
  });
}

}  // namespace detail

template <class T>
void conv_forward(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y,
                  const conv_epilogue<T>& then, const detail::conv_table<T>& table) {
  if (g.batch == 0) return;
  const detail::conv_pass pass = detail::forward_pass(g);
  const dim_t in_plane = conv_geometry::volume(g.in), plane = conv_geometry::volume(g.out);
  if (pass.results == 0 || plane <= 0) return;
  const conv_problem problem = detail::planned(conv_direction::forward, g, table.tiles());
  // What is scaled is added to later.
  const bool scales = then.scale != nullptr;
  detail::share_groups(g.groups, pass.multiply_adds(), [&](dim_t group) {
    const dim_t first = group * pass.results, at = first * plane;
    const T* const shift = bias == nullptr ? nullptr : bias + first;
    const detail::conv_operands<T> of{x + group * pass.sources * in_plane,
                                      w + first * pass.weight_result,
                                      scales ? nullptr : shift,
                                      y + at,
                                      {then.residual == nullptr ? nullptr : then.residual + at,
                                       then.function, scales ? then.scale + first : nullptr},
                                      shift};
    detail::run_first(table, problem, group, pass, of);
  });
}
template <class T>
void conv_backward_data(const conv_geometry& g, const T* dy, const T* w, T* dx, const T* bias,
                        const detail::conv_table<T>& table) {
  if (g.batch == 0) return;
  const detail::conv_pass all = detail::forward_pass(g);
  const dim_t in_plane = conv_geometry::volume(g.in), plane = conv_geometry::volume(g.out);
  const conv_problem problem = detail::planned(conv_direction::data, g, table.tiles());
  for (const conv_algorithm a : {conv_algorithm::col2im, conv_algorithm::im2col})
    if (table.has(a) && applies(a, problem)) {
      if (is_verbose()) [[unlikely]]
        detail::print_plan(problem, name(a));
      return detail::share_groups(g.groups, all.multiply_adds(), [&](dim_t group) {
        const dim_t first = group * all.sources;
        table.run[static_cast<int>(a)](table, all,
                                       {dy + group * all.results * plane,
                                        w + group * all.results * all.weight_result,
                                        bias == nullptr ? nullptr : bias + first,
                                        dx + first * in_plane,
                                        {},
                                        nullptr});
      });
    }
  detail::fill_unmet(g, table.tiles(), bias, dx);
  // What all passes write in turn stays in the second level of the cache.
  const detail::data_blocks blocks{g, static_cast<dim_t>(sizeof(T))};
  for (dim_t i = 0; i < g.batch; i += blocks.images)
    for (dim_t r = 0; r < all.sources; r += blocks.results)
      detail::each_pass(g, [&](detail::conv_pass pass, dim_t source) {
        const conv_problem part = detail::planned(pass, table.tiles());
        pass.batch = std::min(g.batch - i, blocks.images);
        pass.results = std::min(all.sources - r, blocks.results);
        if (pass.results == 0) return;
        detail::share_groups(g.groups, pass.multiply_adds(), [&](dim_t group) {
          const dim_t first = group * all.sources + r;
          const detail::conv_operands<T> of{
              dy + i * pass.source_image + source + group * pass.sources * plane,
              w + group * pass.sources * pass.weight_source + r * pass.weight_result,
              bias == nullptr ? nullptr : bias + first,
              dx + i * pass.result_image + first * in_plane,
              {},
              nullptr};
          detail::run_first(table, part, i + first, pass, of);
        });
      });
}
template <class T>
void conv_backward_weights(const conv_geometry& g, const T* x, const T* dy, T* dw, bool accumulate,
                           const detail::weights_table<T>& table) {
  const detail::conv_tiles<T>& tiles = table.tiles();
  const detail::conv_pass pass = detail::forward_pass(g);
  const dim_t in_plane = conv_geometry::volume(g.in), plane = conv_geometry::volume(g.out),
              size = pass.results * pass.weight_result;
  if (size == 0) return;
  if (g.batch == 0 || in_plane <= 0 || plane <= 0) {
    if (!accumulate) tiles.clear(dw, g.groups * size);
    return;
  }
  const conv_problem problem = detail::planned(conv_direction::weights, g, tiles);
  detail::share_groups(g.groups, pass.multiply_adds(), [&](dim_t group) {
    const detail::weights_job<T> job{tiles,
                                     pass,
                                     x + group * pass.sources * in_plane,
                                     dy + group * pass.results * plane,
                                     dw + group * size,
                                     accumulate};
    detail::run_first(table, problem, group, job);
  });
}
template <class T>
void channel_sums(dim_t batch, dim_t channels, dim_t plane, const T* x, T* sums, bool accumulate) {
  detail::share_rows(channels, batch * plane, IKEBANA_CPU_DISPATCH_ONE_WIDTH(sum_planes<T>),
                     [=](auto* kernel, dim_t b, dim_t e) {
                       kernel(batch, channels, b, e, plane, x, sums, accumulate);
                     });
}
template <class T>
void conv_backward_bias(const conv_geometry& g, const T* dy, T* db, bool accumulate) {
  channel_sums<T>(g.batch, g.out_channels, conv_geometry::volume(g.out), dy, db, accumulate);
}

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
