#pragma once

#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/band_plan.hpp"
#include "ikebana/cpu/conv/buffers.hpp"
#include "ikebana/cpu/conv/gathered_weights.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"

namespace ikebana::cpu::detail {

/// A band's products by panels.
template <class T>
struct conv_panels {
  const band_plan<T>& plan;
  const conv_operands<T>& of;
  const conv_buffers<T>& memory;

  /// `depth` products of each position. `last`: nothing is added to them later.
  void run(conv_job<T> job, dim_t r0, dim_t results, dim_t rows, dim_t columns, dim_t positions,
           dim_t depth, const T* image, const T* w, bool last) const {
    const auto& shape = plan.tiles.panel;
    const T zeros[conv_tiles<T>::most_rows] = {};
    const dim_t step = even_part(depth, plan.depth);
    gathered_weights<T> gathered;
    T* const out = job.out;
    const dim_t out_step = job.out_step;
    for (dim_t k = 0; k < depth; k += step) {
      job.depth = least(depth - k, step);
      job.relu = of.relu() && last && k + job.depth == depth;
      const bool gathers = gathered.lay_out(plan, memory.weight_at, k, job.depth, shape.rows);
      for (dim_t at = 0; at < positions; at += plan.tile) {
        job.count = least(positions - at, plan.tile);
        pack(job, at, image, k, rows, columns);
        const auto tile =
            shape.narrow != nullptr && job.count <= plan.tiles.width ? shape.narrow : shape.whole;
        for (dim_t r = 0; r < results; r += shape.rows) {
          const bool whole = results - r >= shape.rows;
          const dim_t first = whole ? r : results - shape.rows;
          job.weight_at = memory.weight_at + k;
          job.weights = w + first * job.weight_step;
          job.start = of.bias == nullptr ? zeros : of.bias + r0 + first;
          job.out = (whole ? out + r * out_step : memory.tail) + at;
          job.out_step = whole ? out_step : plan.out_step();
          if (at == 0 && gathers)
            gathered.gather(plan, job, shape.rows, results - first - shape.rows);
          else if (at == 0)
            fetch_weights(job, first + shape.rows, results, w);
          if (!job.adds) fetch_out(job, shape.rows);
          tile(job);
        }
      }
      job.adds = true;
    }
  }

  void pack(conv_job<T>& job, dim_t at, const T* image, dim_t k, dim_t rows, dim_t columns) const {
    conv_move moves[band_plan<T>::most_moves];
    const dim_t n = memory.find_moves(moves, plan.tile, at, job.count, rows, columns);
    plan.tiles.pack(job.depth, image, memory.image_at + k, moves, n, memory.panel, plan.tile);
    job.image = memory.panel;
    job.image_at = memory.steps;
  }

  /// The next rows of weights, which come from far where they are many.
  void fetch_weights(const conv_job<T>& job, dim_t first, dim_t results, const T* w) const {
    for (dim_t r = first; r < results && r < first + conv_tiles<T>::most_rows; ++r)
      for (dim_t i = 0; i < job.depth; i += 12)
        __builtin_prefetch(w + r * job.weight_step + job.weight_at[i]);
  }
  void fetch_out(const conv_job<T>& job, dim_t rows) const {
    for (dim_t r = 0; r < rows; ++r)
      for (dim_t i = 0; i < job.count; i += band_plan<T>::line)
        __builtin_prefetch(job.out + r * job.out_step + i, 1);
  }
};

template <class T>
void band_by_panels(const band_plan<T>& plan, const conv_operands<T>& of,
                    const conv_buffers<T>& memory, const conv_job<T>& job, dim_t r0, dim_t results,
                    dim_t rows, dim_t columns, dim_t positions, dim_t depth, const T* image,
                    const T* w, bool last) {
  conv_panels<T>{plan, of, memory}.run(job, r0, results, rows, columns, positions, depth, image, w,
                                       last);
}

template <class T>
using panels_run = decltype(&band_by_panels<T>);

}  // namespace ikebana::cpu::detail
