#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/conv/depthwise.hpp"
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

/// Chooses the first algorithm of the table that applies to p and has memory for the step; prints a
/// line about it, if wanted (verbose.hpp).
template <class T>
void plan_step(const conv_table<T>& table, const conv_problem& p, conv_step& step) {
  for (const conv_algorithm a : conv_algorithms)
    if (table.has(a) && applies(a, p) && table.entry(a)(table, step, nullptr)) {
      step.algorithm = a;
      if (is_verbose()) [[unlikely]]
        print_plan(p, a);
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
          pass.results,
          pass.from,
          pass.to,
          pass.kernel,
          pass.stride,
          pass.padding,
          pass.dilation,
          dim_t{sizeof(T)},
          tiles.width,
          !pass.unit_step(),
          true,
          exact_convolution()};
}

/// Hands the steps of a convolution to f, as they are planned.
template <class T, class F>
void plan_steps(conv_direction direction, const conv_geometry& g, const conv_table<T>& table,
                const F& f) {
  const conv_problem problem = planned(direction, g, table.tiles());
  const conv_pass whole = forward_pass(g);
  const dim_t source = whole.sources * conv_geometry::volume(g.in),
              result = whole.results * conv_geometry::volume(g.out),
              weights = whole.results * whole.weight_result;
  conv_step step{whole};
  if (direction != conv_direction::data) {
    step.group = direction == conv_direction::forward
                     ? conv_offsets{source, weights, whole.results, result}
                     : conv_offsets{source, result, 0, weights};
    plan_step(table, problem, step);
    return f(step);
  }
  step.group = {result, weights, whole.sources, source};
  if (table.has(conv_algorithm::im2col) && applies(conv_algorithm::im2col, problem)) {
    plan_step(table, problem, step);
    return f(step);
  }
  each_pass(g, [&](const conv_pass& pass) {
    conv_step part{pass};
    part.group = {result, pass.sources * pass.weight_source, whole.sources, source};
    plan_step(table, planned(pass, table.tiles()), part);
    f(part);
  });
}

static_assert(sizeof(kept_steps) <= kept_steps_bytes && sizeof(conv_step) <= conv_step_bytes);

/// By what is kept of it, or as it is planned now.
template <class T>
void convolve(conv_direction direction, const conv_geometry& g, const conv_operands<T>& of,
              const conv_table<T>& table, std::span<std::byte> room) {
  if (table.by_groups != nullptr && goes_by_groups(direction, g) && table.by_groups(g, of)) return;
  const auto run = [&](conv_step& step) {
    share_groups(g.groups, step.pass.multiply_adds(), [&](dim_t group) {
      const conv_operands<T> mine = of.ahead(step.group, group);
      table.entry(step.algorithm)(table, step, &mine);
    });
  };
  kept_steps now{g, &table, &table.tiles(), num_threads(), 0, exact_convolution()};
  auto* const kept = reinterpret_cast<kept_steps*>(room.data());
  auto* const steps =
      reinterpret_cast<conv_step*>(room.empty() ? nullptr : room.data() + kept_steps_bytes);
  const dim_t most = static_cast<dim_t>(room.size() / conv_step_bytes);
  if (kept != nullptr && *kept == now) {
    for (dim_t i = 0; i < kept->count; ++i) run(steps[i]);
    return;
  }
  if (kept != nullptr) kept->table = nullptr;
  plan_steps(direction, g, table, [&](conv_step& step) {
    if (now.count < most) steps[now.count] = step;
    ++now.count;
    now.algorithm = step.algorithm;
    run(step);
  });
  if (kept != nullptr && now.count <= most) *kept = now;
}

}  // namespace detail

template <class T>
void conv_forward(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y,
                  const conv_epilogue<T>& then, const detail::conv_table<T>& table,
                  std::span<std::byte> room) {
  if (g.batch == 0 || g.out_channels == 0 || conv_geometry::volume(g.out) <= 0) return;
  // What is scaled is added to later.
  detail::convolve<T>(conv_direction::forward, g,
                      {x, w, then.scale != nullptr ? nullptr : bias, y, then, bias}, table, room);
}
template <class T>
void conv_backward_data(const conv_geometry& g, const T* dy, const T* w, T* dx, const T* bias,
                        const detail::conv_table<T>& table, std::span<std::byte> room) {
  if (g.batch == 0) return;
  detail::convolve<T>(conv_direction::data, g, {dy, w, bias, dx}, table, room);
}
template <class T>
void conv_backward_weights(const conv_geometry& g, const T* x, const T* dy, T* dw, bool accumulate,
                           const detail::conv_table<T>& table, std::span<std::byte> room) {
  const dim_t size = g.out_channels * (g.in_channels / g.groups) * conv_geometry::volume(g.kernel);
  if (size == 0) return;
  if (g.batch == 0 || conv_geometry::volume(g.in) <= 0 || conv_geometry::volume(g.out) <= 0) {
    if (!accumulate) table.tiles().clear(dw, size);
    return;
  }
  detail::convolve<T>(conv_direction::weights, g, {x, dy, nullptr, dw, {}, nullptr, accumulate},
                      table, room);
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
