#pragma once

#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/buffers.hpp"
#include "ikebana/cpu/conv/gathered_weights.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/shapes.hpp"
#include "ikebana/cpu/conv/tile_costs.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"

namespace ikebana::cpu::detail {

/// A band's products by panels.
template <class T>
struct conv_panels {
  const conv_plan<T>& plan;
  const conv_operands<T>& of;
  const conv_buffers<T>& memory;

  /// `depth` products of each position and of `few` after them. `last`: nothing is added to them
  /// later.
  void run(conv_job<T> job, dim_t r0, dim_t results, dim_t rows, dim_t columns, dim_t positions,
           dim_t few, dim_t depth, const T* image, const T* w, bool last) const {
    const auto& shape = plan.tiles.panel;
    const tile_costs<T> costs{plan.tiles, results, plan.depth};
    const T zeros[conv_tiles<T>::most_rows] = {};
    const dim_t step = even_part(depth, plan.depth);
    gathered_weights<T> gathered;
    T* const out = job.out;
    const dim_t out_step = job.out_step;
    for (dim_t k = 0; k < depth; k += step) {
      job.depth = depth - k < step ? depth - k : step;
      job.relu = of.relu() && last && k + job.depth == depth;
      const bool gathers = gathered.lay_out(plan, memory.weight_at, k, job.depth, shape.rows);
      for (dim_t at = 0; at < positions;) {
        const dim_t left = positions - at;
        job.weight_at = memory.weight_at + k;
        const auto* const next = left >= 2 * plan.tile ? &shape : costs.next(left).shape;
        if (next != &shape) {
          const dim_t most = next->registers * plan.tiles.width;
          job.count = left < most ? left : most;
          end_tiles(*next, job, r0, results, at, image, k, rows, columns, w, out, out_step);
          at += most;
          continue;
        }
        job.count = left < plan.tile ? left : plan.tile;
        auto tile = shape.whole;
        bool packs = false;
        if (plan.flat && job.count == plan.tile) {
          const bool aligned =
              plan.reads_aligned() && reinterpret_cast<std::uintptr_t>(image + at) % 64 == 0;
          packs = !aligned;
          tile = aligned ? plan.tiles.slides[0].whole : plan.tiles.packing;
          job.image = image + at;
          job.image_at = memory.image_at + k;
          job.panel = memory.panel;
        } else {
          pack(job, plan.tile, at, image, k, rows, columns);
          if (shape.narrow != nullptr && job.count <= plan.tiles.width) tile = shape.narrow;
        }
        for (dim_t r = 0; r < results; r += shape.rows) {
          const bool whole = results - r >= shape.rows;
          const dim_t first = whole ? r : results - shape.rows;
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
          if (packs) {
            packs = false;
            tile = shape.whole;
            job.image = memory.panel;
            job.image_at = memory.steps;
          }
        }
        at += plan.tile;
      }
      if (few > 0)
        few_positions(job, r0, results, positions, few, image, k, rows, columns, w, out, out_step);
      job.adds = true;
    }
  }

  void pack(conv_job<T>& job, dim_t tile, dim_t at, const T* image, dim_t k, dim_t rows,
            dim_t columns) const {
    conv_move moves[conv_plan<T>::most_moves];
    const dim_t n = memory.find_moves(moves, tile, at, job.count, rows, columns);
    plan.tiles.pack(job.depth, image, memory.image_at + k, moves, n, memory.panel, tile);
    job.image = memory.panel;
    job.image_at = memory.steps;
  }

  /// Sums along the weights, for few positions.
  void few_positions(const conv_job<T>& job, dim_t r0, dim_t results, dim_t at, dim_t count,
                     const T* image, dim_t k, dim_t rows, dim_t columns, const T* w, T* out,
                     dim_t out_step) const {
    const dim_t width = plan.tiles.width, tile = parts(count, width) * width;
    const dim_t shared = plan.tiles.panel.rows, whole = results / shared * shared;
    conv_job<T> gathered = job;
    gathered.count = count;
    pack(gathered, tile, at, image, k, rows, columns);
    T* const turned = memory.panel + (job.depth + 1) * tile;
    plan.tiles.place_across(count, job.depth, memory.panel, tile, nullptr, false, turned,
                            job.depth);
    dot_job<T> dots{};
    dots.images = 1;
    dots.steps = dots.dy_row = job.depth;
    T sums[conv_tiles<T>::most_sums];
    std::int32_t offsets[conv_tiles<T>::most_taps];
    for (dim_t i = 0; i < count;) {
      const auto& shape = shape_for(plan.tiles.dots, count - i);
      dots.dy = turned + i * job.depth;
      dots.offsets = offsets;
      for (dim_t r = 0; r < results; r += shape.taps) {
        const dim_t used = results - r < shape.taps ? results - r : shape.taps;
        dots.x = w + r * job.weight_step + job.weight_at[0];
        for (dim_t s = 0; s < shape.taps; ++s)
          offsets[s] = static_cast<std::int32_t>((s < used ? s : 0) * job.weight_step);
        shape.tile(dots, sums);
        for (dim_t s = 0; s < used; ++s) {
          // The rows that the last tiles share with others are kept apart.
          T* const to = r + s < whole
                            ? out + (r + s) * out_step + at + i
                            : memory.tail + (r + s - results + shared) * plan.out_step() + at + i;
          for (dim_t n = 0; n < shape.rows; ++n) {
            const T start = job.adds ? to[n] : of.bias == nullptr ? T(0) : of.bias[r0 + r + s];
            const T sum = start + sums[n * shape.taps + s];
            to[n] = job.relu && sum < T(0) ? T(0) : sum;
          }
        }
      }
      i += shape.rows;
    }
  }

  /// Tiles of another shape. The last of them share rows.
  void end_tiles(const typename conv_tiles<T>::slide_shape& shape, conv_job<T> job, dim_t r0,
                 dim_t results, dim_t at, const T* image, dim_t k, dim_t rows, dim_t columns,
                 const T* w, T* out, dim_t out_step) const {
    const dim_t tile = shape.registers * plan.tiles.width;
    const T zeros[conv_tiles<T>::most_rows] = {};
    gathered_weights<T> gathered;
    const bool gathers =
        at == 0 && gathered.lay_out(plan, memory.weight_at, k, job.depth, shape.rows);
    pack(job, tile, at, image, k, rows, columns);
    for (dim_t r = 0; r < results; r += shape.rows) {
      const bool whole = results - r >= shape.rows;
      const dim_t first = whole ? r : results - shape.rows;
      job.weights = w + first * job.weight_step;
      job.start = of.bias == nullptr ? zeros : of.bias + r0 + first;
      job.out = out + first * out_step + at;
      job.out_step = out_step;
      if (gathers)
        gathered.gather(plan, job, shape.rows, results - first - shape.rows);
      else if (at == 0)
        fetch_weights(job, first + shape.rows, results, w);
      if (whole) {
        shape.whole(job);
        continue;
      }
      alignas(64) T apart[conv_tiles<T>::most_rows * 64];
      for (dim_t i = 0; i < shape.rows; ++i)
        for (dim_t j = 0; job.adds && j < job.count; ++j)
          apart[i * tile + j] = job.out[i * out_step + j];
      conv_job<T> last = job;
      last.out = apart;
      last.out_step = tile;
      shape.whole(last);
      for (dim_t i = r - first; i < shape.rows; ++i)
        for (dim_t j = 0; j < job.count; ++j) job.out[i * out_step + j] = apart[i * tile + j];
    }
  }

  /// The next rows of weights, which come from far where they are many.
  void fetch_weights(const conv_job<T>& job, dim_t first, dim_t results, const T* w) const {
    for (dim_t r = first; r < results && r < first + conv_tiles<T>::most_rows; ++r)
      for (dim_t i = 0; i < job.depth; i += 12)
        __builtin_prefetch(w + r * job.weight_step + job.weight_at[i]);
  }
  void fetch_out(const conv_job<T>& job, dim_t rows) const {
    for (dim_t r = 0; r < rows; ++r)
      for (dim_t i = 0; i < job.count; i += conv_plan<T>::line)
        __builtin_prefetch(job.out + r * job.out_step + i, 1);
  }
};

template <class T>
void run_panels(const conv_plan<T>& plan, const conv_operands<T>& of, const conv_buffers<T>& memory,
                const conv_job<T>& job, dim_t r0, dim_t results, dim_t rows, dim_t columns,
                dim_t positions, dim_t few, dim_t depth, const T* image, const T* w, bool last) {
  conv_panels<T>{plan, of, memory}.run(job, r0, results, rows, columns, positions, few, depth,
                                       image, w, last);
}

}  // namespace ikebana::cpu::detail
