#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/band_plan.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/layout.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/shapes.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// A pass of few channels and small planes with images, or bands of rows of them, as the lanes of
/// registers, which rows of any length then fill. Its bits are those of the plan that it stands in
/// for: every sum is of the same products in the same order, but for zeros.
template <class T>
struct images_run : band_sizes {
  using slide_shape = typename conv_tiles<T>::slide_shape;

  const conv_tiles<T>& tiles;
  const conv_pass& p;
  conv_operands<T> of{};
  dim_t depth = p.sources * p.taps();
  dim_t bands = 0;  // of a plane
  // Parts of a thread's scratch.
  T *copy = nullptr, *apart = nullptr, *out = nullptr;
  std::int32_t *image_at = nullptr, *weight_at = nullptr;  // of a row of positions
  std::int32_t *all_image_at = nullptr, *all_weight_at = nullptr;

  /// To be planned, or as it was found before.
  images_run(const conv_tiles<T>& t, const conv_pass& pass)
      : band_sizes{.columns = pass.to[2]}, tiles{t}, p{pass} {}
  images_run(const conv_tiles<T>& t, const conv_step& step, const conv_operands<T>& operands)
      : band_sizes{step.bands}, tiles{t}, p{step.pass}, of{operands}, bands{parts(p.to[1], rows)} {}

  static double real(dim_t n) { return static_cast<double>(n); }

  dim_t images() const { return p.batch * p.to[0]; }
  dim_t most_bands() const {
    return p.stride[2] == 1 ? least(p.to[1], parts(2 * tiles.width, images())) : 1;
  }
  void divide(dim_t n) {
    rows = parts(p.to[1], n);
    bands = parts(p.to[1], rows);
  }
  void lay_out() {
    // Lanes that are images need no zeros around them.
    in_place = whole() && p.stands();
    direct = whole() && p.unit_step();
    layout = conv_layout{p, p.to[2], rows, false, false, conv_costs::line_bytes / dim_t{sizeof(T)}};
    if (!in_place) return;
    layout.channel = conv_geometry::volume(p.from);
    layout.slice = p.dilation[0] * p.from[1] * p.from[2];
    layout.pitch = p.from[2];
  }
  bool whole() const { return bands == 1 && p.to[0] == 1; }
  dim_t slots() const { return images() * bands; }
  dim_t blocks() const { return parts(slots(), tiles.width); }
  dim_t positions() const { return rows * p.to[2]; }
  /// Elements of a block's copy, and of what is beside it while it is made.
  dim_t copy_size() const {
    return (layout.channel * p.sources + 2 * conv_tiles<T>::most_registers) * tiles.width;
  }
  dim_t apart_size() const {
    return in_place ? 0 : ((whole() ? met() : layout.channel) + 1) * tiles.width;
  }
  /// The elements of a channel up to the last that may be met.
  dim_t met() const { return ((p.met[0] - 1) * p.from[1] + p.met[1] - 1) * p.from[2] + p.met[2]; }

  struct slot_place {
    dim_t image, z, y;
  };
  slot_place slot(dim_t i) const {
    return {i / bands / p.to[0], i / bands % p.to[0], i % bands * rows};
  }

  /// Copies `used` slots from number `first` on.
  void copy_sources(dim_t first, dim_t used) const {
    const T* source = of.source;
    T* to = copy;
    const dim_t w = tiles.width, from_plane = conv_geometry::volume(p.from);
    // Of what stands, nothing behind the last element that is met is read.
    const dim_t size = in_place ? layout.offset(p.kernel[0] - 1, p.kernel[1] - 1, p.kernel[2] - 1) +
                                      (p.to[1] - 1) * layout.pitch + p.to[2]
                                : layout.planes * layout.y.phases * layout.x.phases * layout.slice;
    for (dim_t c = 0; c < p.sources; ++c, to += layout.channel * w, source += from_plane) {
      if (in_place) {
        tiles.pack_across(to, w, source + first * p.source_image, p.source_image, size, used);
        continue;
      }
      if (whole()) {
        tiles.pack_across(apart, w, source + first * p.source_image, p.source_image, met(), used);
        layout.copy_registers(tiles, p, apart, to);
        continue;
      }
      for (dim_t i = 0; i < used; ++i) {
        const slot_place s = slot(first + i);
        layout.copy(tiles, p, 1, source + s.image * p.source_image, s.z, s.y, dim_t{0},
                    apart + i * layout.channel);
      }
      tiles.pack_across(to, w, apart, layout.channel, size, used);
    }
  }
  void list_offsets(std::int32_t* to) const {
    layout.list_offsets(p, p.sources, to);
    for (dim_t i = 0; i < p.sources * p.taps(); ++i)
      to[i] *= static_cast<std::int32_t>(tiles.width);
  }

  /// About how many cycles it takes to carry rows of so many elements to lanes or back.
  double carried(dim_t n, dim_t length) const {
    const double registers = real(length) / real(tiles.width);
    return real(n) * (conv_costs::transposed_element * real(length) +
                      (whole() ? conv_costs::transposed_row
                               : real(tiles.width) * (conv_costs::transposed_element +
                                                      conv_costs::transposed_vector * registers)));
  }
  /// Those of a block's copy.
  double copied() const {
    const auto reach = [&](std::size_t d, dim_t n) {
      return (n - 1) * p.stride[d] + p.dilation[d] * (p.kernel[d] - 1) + 1;
    };
    return carried(p.sources * p.kernel[0] * reach(1, rows), reach(2, p.to[2]));
  }

  /// Chooses the bands that cost least, and less than `most_cycles`. False if there are none, or
  /// nothing fits.
  bool fit(double most_cycles) {
    double best = most_cycles;
    dim_t chosen = 0;
    for (dim_t n = 1; n <= most_bands(); ++n) {
      divide(n);
      const double all = cost();
      if (all < best) best = all, chosen = n;
    }
    if (chosen == 0) return false;
    divide(chosen);
    if (shares_work(p.multiply_adds()) && blocks() < num_threads()) return false;
    lay_out();
    return place();
  }

  /// Of all blocks, in cycles, about.
  double cost() const {
    dim_t kernel_rows_met = 0;
    for (dim_t y = 0; y < rows; ++y) kernel_rows_met += seen(y).end - seen(y).begin;
    const double each = real(p.sources * p.kernel[0] * p.kernel[2] * kernel_rows_met) / real(rows);
    double computed = 0;
    for (dim_t r = 0; r < p.results;) {
      const slide_shape& s = shape_for(tiles.slides, p.results - r);
      const dim_t left = p.to[2] % s.registers;
      const bool narrow = left == 1 && s.narrow != nullptr;
      const double n = real(p.to[2] / s.registers + (left > 0 && !narrow));
      computed += n * (each * real(s.rows * s.registers + 1) / 2 + conv_costs::lane_tile);
      if (narrow) computed += each * conv_costs::narrow_product + conv_costs::narrow_lane_tile;
      r += s.rows;
    }
    return real(blocks()) *
           (copied() +
            (p.stride[2] > 1 ? conv_costs::strided_tile_loss : conv_costs::tile_loss) * real(rows) *
                computed +
            carried(p.results * rows, p.to[2]));
  }

  /// Divides the calling thread's scratch. False if it is too small.
  bool place() {
    monotonic_scratch scratch = monotonic_scratch::of<T>(), lists = monotonic_scratch::of_lists();
    const dim_t result = positions() * tiles.width;
    scratch.allocate(copy, copy_size());
    scratch.allocate(apart, std::max(apart_size(), result));
    scratch.allocate(out, result * p.results);
    for (std::int32_t** list : {&image_at, &weight_at, &all_image_at, &all_weight_at})
      lists.allocate(*list, depth);
    return scratch.fits() && lists.fits();
  }

  void run() const {
    share_parts(blocks(), grain_of(blocks(), p.multiply_adds()), [this](dim_t b, dim_t e) {
      images_run mine = *this;
      mine.place();
      mine.run(b, e);
    });
  }

  [[gnu::noinline]] void run(dim_t begin, dim_t end) const {
    list_offsets(all_image_at);
    p.list_weights(p.sources, all_weight_at);
    for (dim_t i = begin; i < end; ++i) {
      const dim_t first = i * tiles.width, used = least(slots() - first, tiles.width);
      copy_sources(first, used);
      multiply();
      put(first, used);
      if (of.finishes()) finish(first, used);
    }
  }

  /// The rows of the kernel that meet the source from row y of a plane: what is zero in all lanes
  /// is left out.
  struct kernel_rows {
    dim_t begin, end;
    bool operator==(const kernel_rows&) const = default;
  };
  kernel_rows seen(dim_t y) const {
    kernel_rows k{0, p.kernel[1]};
    if (!whole()) return k;
    const dim_t first = y * p.stride[1] - p.padding[1], step = p.dilation[1];
    while (k.begin < k.end && first + k.begin * step < 0) ++k.begin;
    while (k.begin < k.end && first + (k.end - 1) * step >= p.met[1]) --k.end;
    return k;
  }
  dim_t list(const kernel_rows& k) const {
    dim_t n = 0;
    for (dim_t i = 0; i < p.sources * p.kernel[0]; ++i)
      for (dim_t j = k.begin * p.kernel[2]; j < k.end * p.kernel[2]; ++j, ++n) {
        const dim_t from = i * p.kernel[1] * p.kernel[2] + j;
        image_at[n] = all_image_at[from];
        weight_at[n] = all_weight_at[from];
      }
    return n;
  }

  void multiply() const {
    const T zeros[conv_tiles<T>::most_rows] = {};
    const dim_t w = tiles.width;
    conv_job<T> job{};
    job.weight_step = p.weight_result;
    job.weight_at = weight_at;
    job.image_at = image_at;
    job.out_step = positions() * w;
    job.relu = of.relu();
    kernel_rows listed{0, -1};
    for (dim_t y = 0; y < rows; ++y) {
      if (const kernel_rows k = seen(y); !(k == listed)) {
        job.depth = list(k);
        listed = k;
      }
      for (dim_t r = 0; r < p.results;) {
        const slide_shape& shape = shape_for(tiles.slides, p.results - r);
        job.weights = of.weights + p.weight_first + r * p.weight_result;
        job.start = of.bias == nullptr ? zeros : of.bias + r;
        for (dim_t x = 0; x < columns; x += shape.registers) {
          const bool narrow = columns - x == 1 && shape.narrow != nullptr;
          // The last tile of a row overlaps another.
          dim_t from = x;
          if (!narrow && columns - x < shape.registers && columns > shape.registers)
            from = columns - shape.registers;
          job.count = (narrow ? 1 : least(columns - from, shape.registers)) * w;
          job.image = copy + (y * layout.pitch + from) * w;
          job.out = out + (r * positions() + y * columns + from) * w;
          (narrow ? shape.narrow : shape.whole)(job);
        }
        r += shape.rows;
      }
    }
  }

  void put(dim_t first, dim_t used) const {
    const dim_t n = positions(), plane = p.result_plane();
    for (dim_t r = 0; r < p.results; ++r) {
      T* const to = of.result + r * plane + (direct ? first * p.result_image : 0);
      tiles.place_across(used, n, out + r * n * tiles.width, tiles.width, nullptr, false,
                         direct ? to : apart, direct ? p.result_image : n);
      for (dim_t i = 0; !direct && i < used; ++i) {
        const auto s = slot(first + i);
        tiles.place_rows(least(rows, p.to[1] - s.y), p.to[2], apart + i * n, p.to[2],
                         to + s.image * p.result_image + p.result_at(s.z, s.y, 0),
                         p.step[1] * p.whole[2], p.step[2]);
      }
    }
  }

  void finish(dim_t first, dim_t used) const {
    for (dim_t i = 0; i < used; ++i) {
      const auto s = slot(first + i);
      const dim_t at = s.image * p.result_image + p.result_at(s.z, s.y, 0);
      of.finish(tiles, p.results, least(rows, p.to[1] - s.y) * p.to[2], at, p.result_plane(), 0);
    }
  }
};

/// Where it is faster than the bands that it stands in for.
template <class T>
bool fit_images(const conv_table<T>& table, conv_step& step) {
  const conv_pass& p = step.pass;
  const conv_tiles<T>& tiles = table.tiles();
  band_plan plan{tiles.sizes(), p};
  if (p.taps() == 0 || conv_geometry::volume(p.from) == 0 || !plan.fit() ||
      plan.channels != p.sources)
    return false;
  images_run<T> images{tiles, p};
  const double bands =
      plan.cost() * static_cast<double>(p.sources * p.to[0] * p.to[1] * p.to[2] * p.batch);
  if (!images.fit(table.has(conv_algorithm::bands) ? conv_costs::least_gain * bands
                                                   : std::numeric_limits<double>::infinity()))
    return false;
  step.bands = images;
  return true;
}
template <class T>
void run_images(const conv_table<T>& table, const conv_step& step, const conv_operands<T>& of) {
  images_run<T>{table.tiles(), step, of}.run();
}

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
