#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/band_plan.hpp"
#include "ikebana/cpu/conv/buffers.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/panels.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/shapes.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"

namespace ikebana::cpu::detail {

/// The bands of a plan, by one thread.
template <class T>
struct conv_bands {
  const band_plan<T>& plan;
  const conv_operands<T>& of;
  panels_run<T> by_panels;  // null where the plan has none
  const conv_buffers<T> memory{plan};

  [[gnu::noinline]] void run(dim_t begin, dim_t end) const {
    const conv_pass& pass = plan.p;
    const dim_t high = parts(pass.to[1], plan.rows), wide = parts(pass.to[2], plan.columns);
    const dim_t images = parts(pass.batch * pass.to[0], plan.slots);
    for (dim_t i = begin; i < end; ++i) {
      const dim_t y = i % high * plan.rows, slot = i / high % images * plan.slots;
      const dim_t x = i / (high * images) % wide * plan.columns;
      const dim_t r = i / (high * images * wide) * plan.results;
      const dim_t results = pass.results - r < plan.results ? pass.results - r : plan.results;
      const dim_t columns = pass.to[2] - x < plan.columns ? pass.to[2] - x : plan.columns;
      band(r, results, slot, y, x, columns);
    }
  }

  void band(dim_t r0, dim_t results, dim_t slot, dim_t y, dim_t x, dim_t columns) const {
    const conv_pass& pass = plan.p;
    const conv_layout& layout = plan.layout;
    const dim_t all = pass.batch * pass.to[0];
    const dim_t slots = all - slot < plan.slots ? all - slot : plan.slots;
    const dim_t rows = pass.to[1] - y < plan.rows ? pass.to[1] - y : plan.rows;
    const dim_t pitch = plan.panel ? columns : layout.pitch;
    const dim_t positions = slots * ((rows - 1) * pitch + columns);
    const dim_t image = slot / pass.to[0], z = slot % pass.to[0];
    const dim_t from_plane = conv_geometry::volume(pass.from), plane = pass.result_plane();
    T* const y_at = of.result + image * pass.result_image + r0 * plane + pass.result_at(z, y, x);
    conv_job<T> job{};
    job.weight_step = pass.weight_result;
    job.out = plan.direct ? y_at : memory.out;
    job.out_step = plan.direct ? plane : plan.out_step();
    for (dim_t c = 0; c < pass.sources; c += plan.channels) {
      const dim_t channels = pass.sources - c < plan.channels ? pass.sources - c : plan.channels;
      const T* image_from;
      if (plan.in_place) {
        image_from = of.source + image * pass.source_image + c * from_plane +
                     (z * pass.stride[0] * pass.from[1] + y) * pass.from[2] + x;
      } else {
        for (dim_t s = 0; s < slots; ++s)
          layout.copy(plan.tiles, pass, channels,
                      of.source + (slot + s) / pass.to[0] * pass.source_image + c * from_plane,
                      (slot + s) % pass.to[0], y, x,
                      memory.copy + s * layout.channel * plan.channels);
        image_from = memory.copy;
      }
      job.adds = c > 0;
      const bool last = c + channels == pass.sources;
      const T* const w =
          of.weights + pass.weight_first + c * pass.weight_source + r0 * pass.weight_result;
      if (plan.panel)
        by_panels(plan, of, memory, job, r0, results, rows, columns, positions,
                  channels * plan.taps, image_from, w, last);
      else
        by_sliding(job, r0, results, positions, channels * plan.taps, image_from, w, last);
    }
    if (plan.panel && results % plan.tiles.panel.rows != 0) {
      // The rows that the last tiles share with others have been computed twice, apart.
      const dim_t whole = results / plan.tiles.panel.rows * plan.tiles.panel.rows;
      const dim_t step = plan.out_step();
      place(memory.tail + (plan.tiles.panel.rows - (results - whole)) * step, step, r0 + whole,
            results - whole, slot, slots, y, rows, x, columns, pitch);
      if (!plan.direct) place(memory.out, step, r0, whole, slot, slots, y, rows, x, columns, pitch);
    } else if (!plan.direct) {
      place(memory.out, plan.out_step(), r0, results, slot, slots, y, rows, x, columns, pitch);
    }
    if (of.finishes()) finish(r0, results, slot, slots, y, rows, x, columns);
  }

  [[gnu::noinline]] void finish(dim_t r0, dim_t results, dim_t slot, dim_t slots, dim_t y,
                                dim_t rows, dim_t x, dim_t columns) const {
    const conv_pass& pass = plan.p;
    const dim_t plane = pass.result_plane(), row = pass.to[2];
    const bool whole = columns == row;
    const conv_rest<T> rest{of.then.scale == nullptr ? nullptr : of.then.scale + r0,
                            of.shift == nullptr ? nullptr : of.shift + r0, of.then.function};
    for (dim_t s = 0; s < slots; ++s) {
      const dim_t at = (slot + s) / pass.to[0] * pass.result_image + r0 * plane +
                       pass.result_at((slot + s) % pass.to[0], y, x);
      for (dim_t i = 0; i < (whole ? 1 : rows); ++i)
        plan.tiles.finish_rows(
            results, whole ? rows * row : columns, of.result + at + i * row, plane, rest,
            of.then.residual == nullptr ? nullptr : of.then.residual + at + i * row);
    }
  }

  [[gnu::noinline]] void place(const T* from, dim_t step, dim_t r0, dim_t results, dim_t slot,
                               dim_t slots, dim_t y, dim_t rows, dim_t x, dim_t columns,
                               dim_t pitch) const {
    const conv_pass& pass = plan.p;
    const dim_t plane = pass.result_plane();
    for (dim_t s = 0; s < slots; ++s) {
      const dim_t image = (slot + s) / pass.to[0], z = (slot + s) % pass.to[0];
      T* to = of.result + image * pass.result_image + r0 * plane + pass.result_at(z, y, x);
      const T* at = from + s * rows * columns;
      for (dim_t r = 0; r < results; ++r, to += plane, at += step)
        plan.tiles.place_rows(rows, columns, at, pitch, to, pass.step[1] * pass.whole[2],
                              pass.step[2]);
    }
  }

  [[gnu::noinline]] void by_sliding(conv_job<T> job, dim_t r0, dim_t results, dim_t positions,
                                    dim_t depth, const T* image, const T* w, bool last) const {
    const T zeros[conv_tiles<T>::most_rows] = {};
    const dim_t width = plan.tiles.width;
    T* const out = job.out;
    job.depth = depth;
    job.weight_at = memory.weight_at;
    job.image_at = memory.image_at;
    job.relu = of.relu() && last;
    for (dim_t r = 0; r < results;) {
      const auto& shape = shape_for(plan.tiles.slides, results - r);
      job.weights = w + r * job.weight_step;
      job.start = of.bias == nullptr ? zeros : of.bias + r0 + r;
      for (dim_t at = 0; at < positions;) {
        const bool narrow = shape.narrow != nullptr && positions - at <= width;
        const dim_t size = narrow ? width : shape.registers * width;
        dim_t from = at;
        // What stands in place may not be read past its end: the last tile overlaps another.
        if (plan.in_place && positions - at < size) from = positions - size;
        job.count = positions - from < size ? positions - from : size;
        job.image = image + from;
        job.out = out + r * job.out_step + from;
        (narrow ? shape.narrow : shape.whole)(job);
        at += size;
      }
      r += shape.rows;
    }
  }
};

template <class T>
bool run_by_plan(const conv_tiles<T>& tiles, const conv_pass& p, const conv_operands<T>& of,
                 bool packs, panels_run<T> by_panels) {
  if (p.sources == 0 || p.taps() == 0 || conv_geometry::volume(p.from) == 0) return false;
  band_plan<T> plan{tiles, p, packs};
  if (!plan.fit()) return false;
  if (shares_work(p.multiply_adds())) plan.divide(dim_t{2} * num_threads());
  const dim_t bands = plan.bands();
  share_parts(bands, grain_of(bands, p.multiply_adds()), [&](dim_t begin, dim_t end) {
    conv_bands<T>{plan, of, by_panels}.run(begin, end);
  });
  return true;
}

template <class T>
bool run_bands(const conv_table<T>& table, const conv_pass& p, const conv_operands<T>& of) {
  return run_by_plan<T>(table.tiles(), p, of, false, nullptr);
}
template <class T>
bool run_panels(const conv_table<T>& table, const conv_pass& p, const conv_operands<T>& of) {
  return run_by_plan<T>(table.tiles(), p, of, true, &band_by_panels<T>);
}

}  // namespace ikebana::cpu::detail
