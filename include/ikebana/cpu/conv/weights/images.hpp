#pragma once

#include <algorithm>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/image_lanes.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/shapes.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/weights/job.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

namespace ikebana::cpu::detail {

/// Weights of few channels, of small planes: images are the lanes, so that neighbouring weights
/// read the same copy.
template <class T>
struct weights_by_images : weights_job<T> {
  using job_type = weights_job<T>;
  using job_type::accumulate, job_type::dw, job_type::dy, job_type::p, job_type::tiles, job_type::x;
  using job_type::dy_plane;

  image_lanes<T> lanes{tiles, p};
  T *copy = nullptr, *dy_copy = nullptr, *apart = nullptr;  // of a thread's scratch
  std::int32_t* offsets = nullptr;

  explicit weights_by_images(const job_type& of) : job_type{of} {}

  /// Chooses the bands that cost least, and less than `most_cycles`. False if there are none, or
  /// nothing fits.
  bool fit(double most_cycles) {
    const dim_t most = lanes.most_bands();
    double best = most_cycles;
    dim_t chosen = 0;
    for (dim_t n = 1; n <= most; ++n) {
      // What is not finite beside a shorter band would meet zeros.
      if (p.to[1] % n != 0) continue;
      lanes.divide(n);
      const double all = cost();
      if (all < best) best = all, chosen = n;
    }
    if (chosen == 0) return false;
    lanes.divide(chosen);
    lanes.lay_out();
    return place();
  }

  /// In cycles, about.
  double cost() const {
    const auto real = image_lanes<T>::real;
    double computed = 0;
    for (dim_t r = 0; r < p.results;) {
      const auto& s = shape_for(tiles.dots, p.results - r);
      computed += real(parts(p.sources * p.taps(), s.taps)) *
                  (real(lanes.rows) * (real(p.to[2] * s.rows * s.taps) / 2 + conv_costs::dot_tile) +
                   conv_costs::dot_sums);
      r += s.rows;
    }
    // What comes from the second level of the cache for every tile.
    const dim_t size = p.sources * (lanes.met() + lanes.rows) * tiles.width +
                       p.results * lanes.positions() * tiles.width;
    if (size * dim_t{sizeof(T)} > conv_costs::dot_copy_bytes) computed *= conv_costs::far_lanes;
    return real(lanes.blocks()) *
           (lanes.copied() + lanes.carried(p.results * lanes.rows, p.to[2]) + computed);
  }

  /// Divides the calling thread's scratch. False if it is too small.
  bool place() {
    const dim_t w = tiles.width, n = lanes.positions() * w;
    monotonic_scratch scratch = monotonic_scratch::of<T>(), lists = monotonic_scratch::of_lists();
    scratch.allocate(copy, lanes.copy_size());
    scratch.allocate(dy_copy, p.results * n + w);
    scratch.allocate(apart, std::max(lanes.apart_size(), n));
    lists.allocate(offsets, p.sources * p.taps());
    return scratch.fits() && lists.fits();
  }

  void run() const {
    this->share_results(tiles.dots[0].rows, [this](dim_t begin, dim_t end) {
      weights_by_images mine = *this;
      mine.place();
      mine.run(begin, end);
    });
  }

  [[gnu::noinline]] void run(dim_t begin, dim_t end) const {
    const dim_t w = tiles.width;
    lanes.list_offsets(offsets);
    dot_job<T> job{};
    job.images = lanes.rows;
    job.steps = job.dy_image = p.to[2] * w;
    job.dy_row = lanes.positions() * w;
    job.x = copy;
    job.x_image = lanes.layout.pitch * w;
    for (dim_t i = 0; i < lanes.blocks(); ++i) {
      const dim_t first = i * w, used = least(lanes.slots() - first, w);
      lanes.copy(x, first, used, apart, copy);
      for (dim_t r = begin; r < end; ++r) copy_dy(r, first, used);
      for (dim_t r = begin; r < end;) {
        const auto& shape = shape_for(tiles.dots, end - r);
        job.dy = dy_copy + r * job.dy_row;
        this->sum_up(job, shape, offsets, p.sources * p.taps(), accumulate || i > 0,
                     dw + r * p.weight_result);
        r += shape.rows;
      }
    }
  }

  void copy_dy(dim_t r, dim_t first, dim_t used) const {
    const dim_t n = lanes.positions(), w = tiles.width;
    const T* const from = dy + r * dy_plane();
    T* const to = dy_copy + r * n * w;
    if (lanes.whole())
      return tiles.pack_across(to, w, from + first * p.result_image, p.result_image, n, used);
    for (dim_t i = 0; i < used; ++i) {
      const auto s = lanes.slot(first + i);
      tiles.place_rows(1, n, from + s.image * p.result_image + (s.z * p.to[1] + s.y) * p.to[2], n,
                       apart + i * n, n, 1);
    }
    tiles.pack_across(to, w, apart, n, n, used);
  }
};

}  // namespace ikebana::cpu::detail
