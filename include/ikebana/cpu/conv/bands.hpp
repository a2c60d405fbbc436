#pragma once

#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/band_plan.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/shapes.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// The bands of a plan, by one thread.
template <class T>
struct conv_bands {
  const conv_tiles<T>& tiles;
  const band_plan& plan;
  const conv_operands<T>& of;
  const conv_pass& p = plan.p;
  // Parts of a thread's scratch.
  T *copy = thread_scratch<T>(), *out = copy + plan.copy_size();
  std::int32_t *image_at = reinterpret_cast<std::int32_t*>(thread_lists()),
               *weight_at = image_at + plan.offsets_size();

  struct band {
    dim_t image, z, y, x, rows, columns;
  };

  [[gnu::noinline]] void run(dim_t begin, dim_t end) const {
    plan.layout.list_offsets(p, plan.channels, image_at);
    p.list_weights(plan.channels, weight_at);
    const dim_t high = parts(p.to[1], plan.rows), slots = p.batch * p.to[0];
    for (dim_t i = begin; i < end; ++i) {
      const dim_t y = i % high * plan.rows, slot = i / high % slots,
                  x = i / (high * slots) * plan.columns;
      run({slot / p.to[0], slot % p.to[0], y, x, least(p.to[1] - y, plan.rows),
           least(p.to[2] - x, plan.columns)});
    }
  }

  void run(const band& b) const {
    const dim_t from_plane = conv_geometry::volume(p.from), plane = p.result_plane();
    const dim_t pitch = plan.layout.pitch, positions = (b.rows - 1) * pitch + b.columns;
    const T* const source = of.source + b.image * p.source_image;
    const dim_t at = b.image * p.result_image + p.result_at(b.z, b.y, b.x);
    conv_job<T> job{};
    job.weight_step = p.weight_result;
    job.out = plan.direct ? of.result + at : out;
    job.out_step = plan.direct ? plane : plan.out_step();
    job.weight_at = weight_at;
    job.image_at = image_at;
    for (dim_t c = 0; c < p.sources; c += plan.channels) {
      const dim_t channels = least(p.sources - c, plan.channels);
      const T* image = copy;
      if (plan.in_place)
        image = source + c * from_plane + (b.z * p.stride[0] * p.from[1] + b.y) * p.from[2] + b.x;
      else
        plan.layout.copy(tiles, p, channels, source + c * from_plane, b.z, b.y, b.x, copy);
      job.adds = c > 0;
      job.depth = channels * plan.taps;
      job.relu = of.relu() && c + channels == p.sources;
      multiply(job, positions, image, of.weights + p.weight_first + c * p.weight_source);
    }
    if (!plan.direct)
      for (dim_t r = 0; r < p.results; ++r)
        tiles.place_rows(b.rows, b.columns, out + r * plan.out_step(), pitch,
                         of.result + at + r * plane, p.step[1] * p.whole[2], p.step[2]);
    if (!of.finishes()) return;
    const dim_t row = p.to[2];
    const bool whole = b.columns == row;
    for (dim_t i = 0; i < (whole ? 1 : b.rows); ++i)
      of.finish(tiles, p.results, whole ? b.rows * row : b.columns, at + i * row, plane, 0);
  }

  void multiply(conv_job<T> job, dim_t positions, const T* image, const T* w) const {
    const T zeros[conv_tiles<T>::most_rows] = {};
    const dim_t width = tiles.width;
    T* const to = job.out;
    for (dim_t r = 0; r < p.results;) {
      const auto& shape = shape_for(tiles.slides, p.results - r);
      job.weights = w + r * job.weight_step;
      job.start = of.bias == nullptr ? zeros : of.bias + r;
      for (dim_t at = 0; at < positions;) {
        const bool narrow = shape.narrow != nullptr && positions - at <= width;
        const dim_t size = narrow ? width : shape.registers * width;
        dim_t from = at;
        // What stands in place may not be read past its end: the last tile overlaps another.
        if (plan.in_place && positions - at < size) from = positions - size;
        job.count = least(positions - from, size);
        job.image = image + from;
        job.out = to + r * job.out_step + from;
        (narrow ? shape.narrow : shape.whole)(job);
        at += size;
      }
      r += shape.rows;
    }
  }
};

template <class T>
bool fit_bands(const conv_table<T>& table, conv_step& step) {
  const conv_pass& p = step.pass;
  if (p.sources == 0 || p.taps() == 0 || conv_geometry::volume(p.from) == 0) return false;
  band_plan plan{table.tiles().sizes(), p};
  if (!plan.fit()) return false;
  if (shares_work(p.multiply_adds())) plan.divide(conv_costs::parts_for_thread * num_threads());
  step.bands = plan;
  return true;
}
template <class T>
void run_bands(const conv_table<T>& table, const conv_step& step, const conv_operands<T>& of) {
  const conv_tiles<T>& tiles = table.tiles();
  const band_plan plan{tiles.sizes(), step};
  share_parts(plan.bands(), grain_of(plan.bands(), plan.p.multiply_adds()),
              [&](dim_t begin, dim_t end) {
                conv_bands<T>{tiles, plan, of}.run(begin, end);
              });
}

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
