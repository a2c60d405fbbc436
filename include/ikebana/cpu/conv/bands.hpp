#pragma once

#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/layout.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/conv_memory.hpp"
#include "ikebana/cpu/detail/quotients.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// How a convolution of one group is divided: into bands of positions whose results and copies stay
/// in the second level of the cache. The copy holds a block of channels, so that any number of them
/// fits.
struct band_plan : band_sizes {
  tile_sizes tiles;
  const conv_pass& p;
  dim_t taps = p.taps(), line = conv_costs::line_bytes / tiles.element;

  band_plan(const tile_sizes& t, const conv_step& step)
      : band_sizes{step.bands}, tiles{t}, p{step.pass} {}

  /// False if the copy is too large.
  bool lay_out() {
    layout = conv_layout{p, columns, rows, line};
    return layout.channel * channels <= conv_costs::copied_bytes / tiles.element;
  }
  /// Finds bands whose results fit, and halves what is copied at a time until it does.
  [[gnu::noinline]] void fit() {
    const dim_t depth = conv_costs::most_depth / (taps > 0 ? taps : 1),
                most = p.unit_step()
                           ? p.to[1] * p.to[2]
                           : conv_costs::out_bytes / tiles.element / (p.results + tiles.rows) + 1;
    channels = even_part(p.sources, depth > 0 ? depth : 1);
    columns = even_part(p.to[2], most);
    rows = even_part(p.to[1], columns < most ? most / columns : 1);
    while (!lay_out() && channels * rows * columns > 1)
      if (rows > (channels > 1 ? conv_costs::few_band_rows : 1))
        rows = parts(rows, 2);
      else if (channels > 1)
        channels = parts(channels, 2);
      else
        columns = parts(columns, 2);
    rows = even_part(p.to[1], rows);
    lay_out();
  }
  /// Smaller bands, until there are so many, if these are not too small. No sum is divided
  /// otherwise by it.
  void divide(dim_t wanted) {
    while (bands() < wanted && rows > 1 &&
           parts(rows, 2) * columns >=
               conv_costs::least_band_tiles * tiles.registers * tiles.width) {
      rows = parts(rows, 2);
      lay_out();
    }
  }

  dim_t bands() const { return parts(p.to[2], columns) * p.batch * p.to[0] * parts(p.to[1], rows); }
  /// Elements of the copy, of the results, of each list.
  dim_t copy_size() const {
    return rounded_up(
        layout.channel * channels + 2 * tile_sizes::most_registers * tiles.width + line, line);
  }
  dim_t out_step() const { return rounded_up(rows * columns, line); }
  dim_t out_size() const { return p.unit_step() ? 0 : p.results * out_step(); }
  dim_t list_size() const { return rounded_up(channels * taps, line); }
};

/// The bands of a plan, by one thread.
template <class T>
struct conv_bands {
  const conv_tiles<T>& tiles;
  const band_plan& plan;
  const conv_operands<T>& of;
  const conv_pass& p = plan.p;
  T *copy = nullptr, *out = nullptr;
  std::int32_t *image_at = nullptr, *weight_at = nullptr;

  /// Takes the thread's scratch or, for kernels of many thousands of elements, memory of its own.
  void place() {
    copy = conv_room<T>(plan.copy_size() + plan.out_size());
    out = copy + plan.copy_size();
    image_at = conv_list(2 * plan.list_size());
    weight_at = image_at + plan.list_size();
  }

  [[gnu::noinline]] void run(dim_t begin, dim_t end) {
    place();
    plan.layout.list_offsets(p, plan.channels, image_at);
    p.list_weights(plan.channels, weight_at);
    const dim_t high = parts(p.to[1], plan.rows), slots = p.batch * p.to[0];
    for (dim_t i = begin; i < end; ++i) {
      const dim_t y = i % high * plan.rows, slot = i / high % slots,
                  x = i / (high * slots) * plan.columns;
      band(slot / p.to[0], slot % p.to[0], y, x, least(p.to[1] - y, plan.rows),
           least(p.to[2] - x, plan.columns));
    }
  }

  void band(dim_t image, dim_t z, dim_t y, dim_t x, dim_t rows, dim_t columns) const {
    const dim_t from_plane = conv_geometry::volume(p.from), plane = p.result_plane(),
                pitch = plan.columns, at = image * p.result_image + p.result_at(z, y, x);
    const T* const source = of.source + image * p.source_image;
    const bool direct = p.unit_step();
    conv_job<T> job{};
    job.weight_step = p.weight_result;
    job.out = direct ? of.result + at : out;
    job.out_step = direct ? plane : plan.out_step();
    job.weight_at = weight_at;
    job.image_at = image_at;
    dim_t c = 0;
    do {
      const dim_t channels = least(p.sources - c, plan.channels);
      plan.layout.copy(tiles, p, channels, source + c * from_plane, z, y, x, copy);
      job.adds = c > 0;
      job.depth = channels * plan.taps;
      job.relu = of.relu() && c + channels == p.sources;
      multiply(job, (rows - 1) * pitch + columns,
               of.weights + p.weight_first + c * p.weight_source);
      c += channels;
    } while (c < p.sources);
    if (!direct)
      for (dim_t r = 0; r < p.results; ++r)
        tiles.place_rows(rows, columns, out + r * plan.out_step(), pitch,
                         of.result + at + r * plane, p.step[1] * p.whole[2], p.step[2]);
    // One row, or whole ones.
    if (of.finishes()) of.finish(tiles, p.results, rows * columns, at, plane, 0);
  }

  void multiply(conv_job<T> job, dim_t positions, const T* w) const {
    const T zeros[conv_tiles<T>::most_rows] = {};
    const dim_t width = tiles.width;
    T* const to = job.out;
    for (dim_t r = 0; r < p.results;) {
      const auto* shape = tiles.slides;
      while (shape->rows > p.results - r) ++shape;
      job.weights = w + r * job.weight_step;
      job.start = of.bias == nullptr ? zeros : of.bias + r;
      for (dim_t at = 0; at < positions;) {
        const bool narrow = shape->narrow != nullptr && positions - at <= width;
        const dim_t size = narrow ? width : shape->registers * width;
        job.count = least(positions - at, size);
        job.image = copy + at;
        job.out = to + r * job.out_step + at;
        (narrow ? shape->narrow : shape->whole)(job);
        at += size;
      }
      r += shape->rows;
    }
  }
};

template <class T>
bool run_bands(const conv_table<T>& table, conv_step& step, const conv_operands<T>* of) {
  const conv_tiles<T>& tiles = table.tiles();
  band_plan plan{tiles.sizes(), step};
  const dim_t work = plan.p.multiply_adds();
  if (of == nullptr) {
    plan.fit();
    if (shares_work(work)) plan.divide(conv_costs::parts_for_thread * num_threads());
    step.bands = plan;
  } else {
    share_parts(plan.bands(), grain_of(plan.bands(), work), [&](dim_t begin, dim_t end) {
      conv_bands<T>{tiles, plan, *of}.run(begin, end);
    });
  }
  return true;
}

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
