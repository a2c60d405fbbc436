#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/band_plan.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/image_lanes.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/shapes.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

namespace ikebana::cpu::detail {

/// A pass of few channels and small planes with images as lanes. Its bits are those of the plan
/// that it stands in for: every sum is of the same products in the same order, but for zeros.
template <class T>
struct images_run : image_lanes<T> {
  using base = image_lanes<T>;
  using slide_shape = typename conv_tiles<T>::slide_shape;
  using base::blocks, base::copied, base::p, base::positions, base::real, base::rows, base::slots,
      base::tiles, base::whole;

  const conv_operands<T>& of;
  dim_t depth = p.sources * p.taps();
  // Parts of a thread's scratch.
  T *copy = nullptr, *apart = nullptr, *out = nullptr;
  std::int32_t *image_at = nullptr, *weight_at = nullptr;  // of a row of positions
  std::int32_t *all_image_at = nullptr, *all_weight_at = nullptr;

  images_run(const conv_tiles<T>& t, const conv_pass& pass, const conv_operands<T>& operands)
      : base{t, pass}, of{operands} {}

  /// Chooses the bands that cost least, and less than `most_cycles`. False if there are none, or
  /// nothing fits.
  bool fit(double most_cycles) {
    double best = most_cycles;
    dim_t chosen = 0;
    for (dim_t n = 1; n <= this->most_bands(); ++n) {
      this->divide(n);
      const double all = cost();
      if (all < best) best = all, chosen = n;
    }
    if (chosen == 0) return false;
    this->divide(chosen);
    if (shares_work(p.multiply_adds()) && blocks() < num_threads()) return false;
    this->lay_out();
    return place();
  }

  /// Of all blocks, in cycles, about.
  double cost() const {
    dim_t met = 0;
    for (dim_t y = 0; y < rows; ++y) met += seen(y).end - seen(y).begin;
    const double each = real(p.sources * p.kernel[0] * p.kernel[2] * met) / real(rows);
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
            this->carried(p.results * rows, p.to[2]));
  }

  /// Divides the calling thread's scratch. False if it is too small.
  bool place() {
    monotonic_scratch scratch = monotonic_scratch::of<T>(), lists = monotonic_scratch::of_lists();
    const dim_t result = positions() * tiles.width;
    scratch.allocate(copy, this->copy_size());
    scratch.allocate(apart, std::max(this->apart_size(), result));
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
    this->list_offsets(all_image_at);
    p.list_weights(p.sources, all_weight_at);
    for (dim_t i = begin; i < end; ++i) {
      const dim_t first = i * tiles.width, used = least(slots() - first, tiles.width);
      base::copy(of.source, first, used, apart, copy);
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
    const dim_t w = tiles.width, columns = p.to[2];
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
          job.image = copy + (y * this->layout.pitch + from) * w;
          job.out = out + (r * positions() + y * columns + from) * w;
          (narrow ? shape.narrow : shape.whole)(job);
        }
        r += shape.rows;
      }
    }
  }

  void put(dim_t first, dim_t used) const {
    const dim_t n = positions(), plane = p.result_plane();
    const bool direct = whole() && p.unit_step();
    for (dim_t r = 0; r < p.results; ++r) {
      T* const to = of.result + r * plane + (direct ? first * p.result_image : 0);
      tiles.place_across(used, n, out + r * n * tiles.width, tiles.width, nullptr, false,
                         direct ? to : apart, direct ? p.result_image : n);
      for (dim_t i = 0; !direct && i < used; ++i) {
        const auto s = this->slot(first + i);
        tiles.place_rows(least(rows, p.to[1] - s.y), p.to[2], apart + i * n, p.to[2],
                         to + s.image * p.result_image + p.result_at(s.z, s.y, 0),
                         p.step[1] * p.whole[2], p.step[2]);
      }
    }
  }

  void finish(dim_t first, dim_t used) const {
    for (dim_t i = 0; i < used; ++i) {
      const auto s = this->slot(first + i);
      const dim_t at = s.image * p.result_image + p.result_at(s.z, s.y, 0);
      of.finish(tiles, p.results, least(rows, p.to[1] - s.y) * p.to[2], at, p.result_plane(), 0);
    }
  }
};

/// Where it is faster than the bands that it stands in for.
template <class T>
bool run_images(const conv_table<T>& table, const conv_pass& p, const conv_operands<T>& of) {
  const conv_tiles<T>& tiles = table.tiles();
  band_plan plan{tiles.sizes(), p};
  if (p.taps() == 0 || conv_geometry::volume(p.from) == 0 || !plan.fit() ||
      plan.channels != p.sources)
    return false;
  images_run<T> images{tiles, p, of};
  const double bands =
      plan.cost() * static_cast<double>(p.sources * p.to[0] * p.to[1] * p.to[2] * p.batch);
  if (!images.fit(table.has(conv_algorithm::bands) ? conv_costs::least_gain * bands
                                                   : std::numeric_limits<double>::infinity()))
    return false;
  images.run();
  return true;
}

}  // namespace ikebana::cpu::detail
