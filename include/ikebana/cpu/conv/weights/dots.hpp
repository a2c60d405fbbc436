#pragma once

#include <algorithm>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/layout.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/shapes.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/weights/job.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// Weights of few channels: positions are the lanes, and every tile ends with sums over them.
template <class T>
struct weights_by_dots : weights_job<T> {
  using job_type = weights_job<T>;
  using job_type::accumulate, job_type::dw, job_type::dy, job_type::p, job_type::tiles, job_type::x;
  using job_type::dy_plane, job_type::plane;
  static constexpr dim_t line = job_type::line,
                         copy_room = conv_costs::dot_copy_bytes / dim_t{sizeof(T)};

  dim_t channels = p.sources, rows = p.to[1], slots = 1;  // of a band
  conv_layout layout{};

  explicit weights_by_dots(const job_type& of) : job_type{of} {}

  /// False if no copy fits.
  bool fit() {
    // Every few taps read a tile's rows of dy again: near, they leave room for the copy. The order
    // of summation follows from it, so it is the same for all caches.
    const dim_t near = conv_costs::dot_rows_bytes / (tiles.dots[0].rows * dim_t{sizeof(T)});
    if (rows * p.to[2] > near) rows = even_part(rows, std::max(near / p.to[2], dim_t{1}));
    while (!lay_out()) {
      if (rows > conv_costs::few_band_rows)
        rows = parts(rows, 2);
      else if (channels > 1)
        channels = parts(channels, 2);
      else if (rows > 1)
        rows = parts(rows, 2);
      else
        return false;
    }
    if (const dim_t even = even_part(p.to[1], rows); even != rows) {
      rows = even;
      lay_out();
    }
    if (p.to[0] == 1 && rows == p.to[1]) {
      slots = least(copy_room / (layout.channel * channels), near / plane());
      slots = slots < 1 ? 1 : even_part(p.batch, slots);
    }
    return copy_size() <= static_cast<dim_t>((packed_b_bytes + packed_a_bytes) / sizeof(T)) &&
           static_cast<std::size_t>(channels * p.taps()) * sizeof(std::int32_t) <= list_bytes;
  }
  bool lay_out() {
    // What lies between rows would be summed too.
    const bool dense = rows > 1 || p.stride[2] > 1;
    layout = conv_layout{p, p.to[2], rows, false, dense, line};
    if (p.stride[1] > 1 || rows < p.dilation[1]) {
      const conv_layout apart{p, p.to[2], rows, true, dense, line};
      if (apart.channel < layout.channel) layout = apart;
    }
    return layout.channel * channels <= copy_room;
  }
  dim_t copy_size() const {
    return parts(slots * layout.channel * channels + 2 * line + tiles.width, line) * line;
  }

  void run() const {
    this->share_results(tiles.dots[0].rows, [this](dim_t begin, dim_t end) { run(begin, end); });
  }

  [[gnu::noinline]] void run(dim_t begin, dim_t end) const {
    const dim_t taps = p.taps();
    T* const copy = thread_scratch<T>();
    std::int32_t* const offsets = reinterpret_cast<std::int32_t*>(thread_lists());
    layout.list_offsets(p, channels, offsets);
    dot_job<T> job{};
    job.dy_row = dy_plane();
    job.dy_image = p.result_image;
    job.x = copy;
    job.x_image = layout.channel * channels;
    for (dim_t c = 0; c < p.sources; c += channels) {
      const dim_t some = least(p.sources - c, channels);
      bool adds = accumulate;
      for (dim_t slot = 0; slot < p.batch * p.to[0]; slot += slots)
        for (dim_t y = 0; y < p.to[1]; y += rows) {
          const dim_t z = slot % p.to[0], image = slot / p.to[0];
          job.images = least(p.batch * p.to[0] - slot, slots);
          job.steps = least(p.to[1] - y, rows) * p.to[2];
          for (dim_t s = 0; s < job.images; ++s)
            layout.copy(tiles, p, some,
                        x + (image + s) * p.source_image + c * conv_geometry::volume(p.from), z, y,
                        dim_t{0}, copy + s * job.x_image);
          const T* const dy_from = dy + image * p.result_image + (z * p.to[1] + y) * p.to[2];
          for (dim_t r = begin; r < end;) {
            const auto& shape = shape_for(tiles.dots, end - r);
            job.dy = dy_from + r * dy_plane();
            this->sum_up(job, shape, offsets, some * taps, adds,
                         dw + r * p.weight_result + c * taps);
            r += shape.rows;
          }
          adds = true;
        }
    }
  }
};

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
