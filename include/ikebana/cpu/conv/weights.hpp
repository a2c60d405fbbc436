#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plain.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/weights/dots.hpp"
#include "ikebana/cpu/conv/weights/job.hpp"
#include "ikebana/cpu/conv/weights/lanes.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/gemm.hpp"

IKEBANA_CPU_BEGIN_SMALL
// The algorithms for the gradient of the weights. Nothing but dy and x (with the zeros around it)
// is ever multiplied, but by Winograd's.
namespace ikebana::cpu::detail {

template <class T>
void run_weights_product(const conv_table<T>&, const conv_step& step, const conv_operands<T>& of) {
  const conv_pass& p = step.pass;
  const dim_t plane = p.result_plane();
  for (dim_t i = 0; i < p.batch; ++i)
    gemm<T>(transpose::no, transpose::yes, p.results, p.sources, plane, T(1),
            of.weights + i * p.result_image, plane, of.source + i * p.source_image, plane,
            T(of.accumulates || i > 0), of.result, p.sources);
}

template <class T>
bool fit_channels(const conv_table<T>& table, conv_step& step) {
  return weights_by_lanes<T>{{table, step.pass, {}}}.fit();
}
template <class T>
bool run_channels_if_they_fit(const weights_job<T>& job) {
  weights_by_lanes<T> lanes{job};
  if (!lanes.fit()) return false;
  lanes.run();
  return true;
}
template <class T>
void run_channels(const conv_table<T>& table, const conv_step& step, const conv_operands<T>& of) {
  run_channels_if_they_fit(weights_job<T>{table, step.pass, of});
}

/// Rows of which no copy would fit are met in parts.
template <class T>
bool fit_dots(const conv_table<T>& table, conv_step& step) {
  return step.pass.to[2] > 1 || weights_by_dots<T>{{table, step.pass, {}}}.fit();
}
template <class T>
bool run_dots_if_they_fit(const conv_table<T>& table, const weights_job<T>& job) {
  const conv_pass& p = job.p;
  if (weights_by_dots<T> dots{job}; p.to[2] <= conv_costs::longest_row && dots.fit()) {
    dots.run();
    return true;
  }
  if (p.to[2] == 1) return false;
  const dim_t columns = even_part(p.to[2], least(parts(p.to[2], 2), conv_costs::part_of_row));
  bool adds = job.accumulate;
  for (dim_t z = 0; z < p.to[0]; ++z)
    for (dim_t y = 0; y < p.to[1]; ++y)
      for (dim_t x = 0; x < p.to[2]; x += columns, adds = true) {
        conv_pass part = p;
        part.to = {1, 1, least(p.to[2] - x, columns)};
        part.padding = {p.padding[0] - z * p.stride[0], p.padding[1] - y * p.stride[1],
                        p.padding[2] - x * p.stride[2]};
        weights_job<T> some{table, part, {}};
        some.x = job.x, some.dy = job.dy + p.result_at(z, y, x);
        some.dw = job.dw, some.accumulate = adds;
        if (table.has(conv_algorithm::channels_in_lanes) && p.sources >= job.tiles.width &&
            run_channels_if_they_fit(some))
          continue;
        if (!run_dots_if_they_fit(table, some)) run_weights_plain(some);
      }
  return true;
}
template <class T>
void run_dots(const conv_table<T>& table, const conv_step& step, const conv_operands<T>& of) {
  run_dots_if_they_fit(table, weights_job<T>{table, step.pass, of});
}

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
