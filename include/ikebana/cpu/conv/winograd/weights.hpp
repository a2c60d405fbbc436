#pragma once

#include <cstddef>
#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/winograd/tiles.hpp"
#include "ikebana/cpu/detail/conv_memory.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/dispatch.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// The gradient of 3x3 weights by tiles of 4x4 results: what is made of dy and of x by the
/// transposed transforms of the pass is multiplied at each of 36 positions and summed over a block
/// of tiles, then made 9 sums, which are added up block after block. Blocks follow from the
/// geometry alone, and so do the bits; work is shared out by results and channels.
template <class T>
struct winograd_weights : winograd_tiles<T> {
  using base = winograd_tiles<T>;
  using unit = typename base::unit;
  using base::block, base::kernels, base::p, base::positions, base::segment, base::tiles;
  using base::pitch, base::units;

  const T* dy;
  T* dw;
  bool accumulate;

  dim_t results = 0, channels = 0;  // of a job
  dim_t depth = 0;                  // channels at once
  dim_t panel = 0;                  // results at once
  T *spread = nullptr, *products = nullptr, *sums = nullptr, *packed = nullptr;

  static dim_t even_part(dim_t n, dim_t most) { return parts(n, parts(n, most)); }
  dim_t result_jobs() const { return parts(p.results, results); }
  dim_t jobs() const { return result_jobs() * parts(p.sources, channels); }
  dim_t channel_step() const { return (parts(block * segment, 16) | 1) * 16; }
  dim_t taken_step() const { return depth * channel_step() + kernels.width; }
  /// From one position of a panel to the next.
  dim_t spread_step(dim_t width) const { return block * segment * width + kernels.width; }
  dim_t panel_at(dim_t r) const {
    return positions * (block * segment * r + parts(r, panel) * kernels.width);
  }

  void fit() {
    this->across = parts(p.to[2], 4);
    this->down = parts(p.to[1], 4);
    segment = even_part(this->across, conv_costs::winograd_segment);
    this->segments = parts(this->across, segment);
    block = even_part(units(), least(conv_costs::winograd_tiles / segment, base::most_units));
    const dim_t w = kernels.width, threads = num_threads();
    results = even_part(parts(p.results, w), conv_costs::winograd_results / w) * w;
    channels = even_part(p.sources, conv_costs::winograd_channels);
    while (jobs() % threads != 0 && jobs() < conv_costs::jobs_for_thread * threads &&
           channels > conv_costs::winograd_channels_at_once)
      channels = parts(channels, 2);
    while (jobs() < threads && results > w) results = parts(results / w, 2) * w;
    depth = even_part(channels, conv_costs::winograd_channels_at_once);
    panel = least(results, kernels.registers * w);
  }

  /// Divides the calling thread's memory.
  void place() {
    const auto allocate_all = [&](monotonic_scratch scratch) {
      scratch.allocate(this->taken, positions * taken_step());
      scratch.allocate(spread, panel_at(results));
      scratch.allocate(products, positions * (depth * panel + kernels.width));
      scratch.allocate(sums, 9 * channels * results);
      scratch.allocate(packed, (16 * segment + 1) * kernels.width);
      scratch.allocate(this->buffer, 6 * pitch());
      scratch.allocate(this->zeros, pitch());
      return scratch.used();
    };
    const std::size_t size = allocate_all({nullptr, 0});
    allocate_all({conv_bytes(conv_use::beside, size), size});
    tiles.clear(this->zeros, pitch());
  }

  void run() const {
    share_parts(jobs(), 1, [this](dim_t b, dim_t e) {
      winograd_weights mine = *this;
      mine.place();
      for (; b < e; ++b) mine.run_job(b);
    });
  }

  void run_job(dim_t job) const {
    const dim_t r = job % result_jobs() * results, c = job / result_jobs() * channels;
    const dim_t width = least(results, parts(p.results - r, kernels.width) * kernels.width),
                count = least(channels, p.sources - c);
    for (dim_t b = 0; b < units(); b += block)
      run_block(b, least(units(), b + block), r, width, c, count);
    for (dim_t i = 0; i < width; i += panel)
      finish(r + i, least(panel, width - i), c, count, sums + 9 * count * i);
  }

  void run_block(dim_t b, dim_t e, dim_t r, dim_t width, dim_t c, dim_t count) const {
    unit these[base::most_units];
    const dim_t n = this->find_units(b, e, these);
    for (dim_t i = 0; i < width; i += panel) {
      const dim_t wide = least(panel, width - i);
      // Images are read along.
      for (dim_t l = 0; l < wide; l += kernels.width) {
        T* to = spread + panel_at(i) + l;
        for (const unit* u = these; u < these + (e - b); ++u) {
          spread_out(*u, r + i + l, wide, to);
          to += u->tiles * wide;
        }
      }
    }
    winograd_product<T> job{};
    job.depth = n;
    job.source = this->taken;
    job.source_position = taken_step();
    job.source_row = channel_step();
    job.source_step = 1;
    job.to = products;
    for (dim_t at = 0; at < count; at += depth) {
      job.rows = least(depth, count - at);
      this->take(these, e - b, c + at, job.rows, channel_step(), taken_step());
      for (dim_t i = 0; i < width; i += panel) {
        job.width = least(panel, width - i);
        job.weights = spread + panel_at(i);
        job.weight_position = spread_step(job.width);
        job.to_position = job.rows * job.width + kernels.width;
        kernels.multiply(job);
        kernels.gather(job.rows, job.width, products, job.to_position,
                       sums + 9 * (count * i + at * job.width), b > 0);
      }
    }
  }

  /// Carries over a register of results of dy, from r on, to a panel.
  void spread_out(const unit& u, dim_t r, dim_t panel_width, T* to) const {
    const dim_t plane = p.result_plane(), row = 4 * u.tiles, width = kernels.width;
    const dim_t rows = least(4, p.to[1] - u.y), length = least(row, p.to[2] - u.x),
                count = least(width, p.results - r);
    const T* const from = dy + u.result + r * plane;
    if (length == p.to[2] && length == row)
      tiles.pack_across(packed, width, from, plane, rows * length, count);
    else
      for (dim_t y = 0; y < rows; ++y) {
        T* const at = packed + y * row * width;
        tiles.pack_across(at, width, from + y * p.to[2], plane, length, count);
        tiles.clear(at + length * width, (row - length) * width);
      }
    tiles.clear(packed + rows * row * width, (4 - rows) * row * width);
    kernels.spread(u.tiles, packed, to, panel_width, spread_step(panel_width));
  }

  /// Puts a panel's sums where they belong.
  void finish(dim_t r, dim_t width, dim_t c, dim_t count, const T* from) const {
    const dim_t rows = least(width, p.results - r);
    T* const to = dw + r * p.weight_result + 9 * c;
    if (!accumulate)
      return tiles.place_across(rows, 9 * count, from, width, nullptr, false, to, p.weight_result);
    for (dim_t at = 0; at < count; at += depth) {
      const dim_t size = 9 * least(depth, count - at);
      tiles.place_across(rows, size, from + 9 * at * width, width, nullptr, false, products, size);
      for (dim_t i = 0; i < rows; ++i)
        tiles.finish_rows(1, size, to + i * p.weight_result + 9 * at, 0, {nullptr, nullptr, {}},
                          products + i * size);
    }
  }
};

/// In float, on instruction sets that have its kernels.
template <class T>
bool run_winograd_weights(const conv_table<T>& table, conv_step& step, const conv_operands<T>* of) {
  if constexpr (std::is_same_v<T, float>) {
    const winograd_kernels<T>* const kernels = IKEBANA_CPU_DISPATCH(kernels_for_winograd<T>)();
    if (kernels == nullptr || of == nullptr) return kernels != nullptr;
    winograd_weights<T> run{
        {*kernels, table.tiles(), step.pass, of->source}, of->weights, of->result, of->accumulates};
    run.fit();
    run.run();
    return true;
  } else {
    return false;
  }
}
IKEBANA_CPU_KERNEL(run_winograd_weights)

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
