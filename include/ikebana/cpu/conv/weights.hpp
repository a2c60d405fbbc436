#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/pass.hpp"
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
bool run_weights_product(const weights_table<T>&, const weights_job<T>& job) {
  const conv_pass& p = job.p;
  const dim_t plane = job.dy_plane();
  for (dim_t i = 0; i < p.batch; ++i)
    gemm<T>(transpose::no, transpose::yes, p.results, p.sources, plane, T(1),
            job.dy + i * p.result_image, plane, job.x + i * p.source_image, plane,
            T(job.accumulate || i > 0), job.dw, p.sources);
  return true;
}

template <class T>
bool run_channels(const weights_table<T>&, const weights_job<T>& job) {
  weights_by_lanes<T> lanes{job};
  if (!lanes.fit()) return false;
  lanes.run();
  return true;
}

/// Rows of which no copy would fit are met in parts.
template <class T>
bool run_dots(const weights_table<T>& table, const weights_job<T>& job) {
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
        const weights_job<T> some{job.tiles, part, job.x, job.dy + p.result_at(z, y, x),
                                  job.dw,    adds};
        const auto by_channels = table.run[static_cast<int>(conv_algorithm::channels_in_lanes)];
        if (by_channels != nullptr && p.sources >= job.tiles.width && by_channels(table, some))
          continue;
        if (!run_dots(table, some)) table.run[static_cast<int>(conv_algorithm::plain)](table, some);
      }
  return true;
}

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
