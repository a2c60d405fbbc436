#pragma once

#include <cstddef>
#include <type_traits>

#include "ikebana/core/shape.hpp"
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

/// A pass of 3x3 by tiles of 4x4 results. Blocks of tiles are such that what is made of them stays
/// in the second level of the cache; the weights are carried over once for all blocks.
template <class T>
struct winograd_run : winograd_tiles<T> {
  using base = winograd_tiles<T>;
  using unit = typename base::unit;
  using base::block, base::kernels, base::p, base::positions, base::segment, base::tiles;
  using base::pitch, base::units;

  const T *weights, *bias;
  T* result;
  conv_epilogue<T> then;
  const T* shift;  // where `then` scales

  dim_t depth = 0, panels = 0;  // channels and results at once
  T *carried = nullptr, *products = nullptr, *results = nullptr, *packed = nullptr;
  bool held = false, large = false;

  /// Registers of results in a panel.
  dim_t panel_registers(dim_t panel) const {
    const dim_t all = parts(p.results, kernels.width);
    return all / panels + (panel < all % panels);
  }
  dim_t panel_first(dim_t panel) const {
    const dim_t all = parts(p.results, kernels.width), longer = all % panels;
    return (all / panels * panel + (panel < longer ? panel : longer)) * kernels.width;
  }
  dim_t widest() const { return panel_registers(0) * kernels.width; }
  /// What is carried over of a panel's weights, to channel c.
  dim_t carried_size(dim_t width, dim_t c) const {
    return positions * (c * width + parts(c, depth) * kernels.width);
  }

  bool fit() {
    const dim_t columns = this->across = parts(p.to[2], 4);
    this->down = parts(p.to[1], 4);
    panels = parts(parts(p.results, kernels.width), kernels.registers);
    depth = parts(p.sources, parts(p.sources, conv_costs::winograd_depth));
    const dim_t wide = widest();
    // Where weights are many, few tiles at a time would wait for them.
    large = p.sources > conv_costs::many_winograd_sources;
    const dim_t room =
        static_cast<dim_t>((scratch_bytes().b + scratch_bytes().a) / sizeof(T)) * (large ? 2 : 1);
    const dim_t each = positions * (p.sources + wide);  // for every tile of a block
    const auto rest = [&](dim_t n) {
      segment = n;
      return positions * 2 * kernels.width + 16 * n * wide + 9 * depth * wide + 7 * pitch() +
             6 * kernels.width + 256;
    };
    dim_t cuts = 1;
    while (rest(parts(columns, cuts)) + parts(columns, cuts) * each > room) {
      if (cuts == columns) return false;
      ++cuts;
    }
    rest(parts(columns, cuts));
    this->segments = parts(columns, segment);
    block = (room - rest(segment)) / (segment * each);
    block = least(least(block, base::most_units), parts(units(), num_threads()));
    block = parts(units(), parts(units(), block));
    dim_t all = 0;
    for (dim_t i = 0; i < panels; ++i)
      all += carried_size(panel_registers(i) * kernels.width, p.sources);
    held = block < units();
    carried = conv_memory<T>(conv_use::weights, held ? all : carried_size(wide, depth));
    return true;
  }

  /// Divides the calling thread's scratch.
  void place() {
    const scratch_sizes room = scratch_bytes();
    const std::size_t size = (room.a + room.b) * (large ? 2 : 1);
    monotonic_scratch scratch{large ? conv_bytes(conv_use::beside, size)
                                    : reinterpret_cast<std::byte*>(thread_scratch<T>()),
                              size};
    const dim_t wide = widest(), n = block * segment;
    scratch.allocate(this->taken, positions * taken_step());
    scratch.allocate(products, positions * (n * wide + kernels.width));
    scratch.allocate(results, 16 * segment * wide);
    scratch.allocate(packed, 9 * depth * wide + kernels.width);
    scratch.allocate(this->buffer, 6 * pitch());
    scratch.allocate(this->zeros, pitch());
    tiles.clear(this->zeros, pitch());
  }
  dim_t taken_step() const { return p.sources * block * segment + kernels.width; }

  void run() {
    place();
    if (held) {
      T* to = carried;
      for (dim_t panel = 0; panel < panels; ++panel) {
        const dim_t width = panel_registers(panel) * kernels.width;
        for (dim_t c = 0; c < p.sources; c += depth)
          carry_over(panel, width, c, to + carried_size(width, c));
        to += carried_size(width, p.sources);
      }
    }
    share_parts(units(), block, [this](dim_t b, dim_t e) {
      winograd_run mine = *this;
      mine.place();
      for (; b < e; b += block) mine.run_block(b, least(e, b + block));
    });
  }

  /// The weights of a panel for some channels from c on.
  void carry_over(dim_t panel, dim_t width, dim_t c, T* to) const {
    const dim_t first = panel_first(panel), count = least(width, p.results - first);
    const dim_t some = least(p.sources - c, depth);
    const bool turned = p.weight_tap[2] < 0;
    const T* const from =
        weights + p.weight_first - (turned ? 8 : 0) + first * p.weight_result + c * p.weight_source;
    if (p.weight_source == 9)
      tiles.pack_across(packed, width, from, p.weight_result, 9 * some, count);
    else
      for (dim_t i = 0; i < some; ++i)
        tiles.pack_across(packed + 9 * i * width, width, from + i * p.weight_source,
                          p.weight_result, 9, count);
    kernels.weigh(some, width, turned, packed, to, some * width + kernels.width);
  }

  void run_block(dim_t b, dim_t e) const {
    const dim_t channel_step = block * segment;
    unit these[base::most_units];
    const dim_t n = this->find_units(b, e, these);
    this->take(these, e - b, 0, p.sources, channel_step, taken_step());
    const T* panel_weights = carried;
    for (dim_t panel = 0; panel < panels; ++panel) {
      const dim_t width = panel_registers(panel) * kernels.width,
                  position = n * width + kernels.width;
      for (dim_t c = 0; c < p.sources; c += depth) {
        const dim_t some = least(p.sources - c, depth);
        if (!held) carry_over(panel, width, c, carried);
        winograd_product<T> job{};
        job.rows = n;
        job.depth = some;
        job.width = width;
        job.source = this->taken + c * channel_step;
        job.source_position = taken_step();
        job.source_row = 1;
        job.source_step = channel_step;
        job.weights = held ? panel_weights + carried_size(width, c) : carried;
        job.weight_position = some * width + kernels.width;
        job.to = products;
        job.to_position = position;
        job.adds = c > 0;
        kernels.multiply(job);
      }
      panel_weights += carried_size(width, p.sources);
      const T* from = products;
      for (const unit* u = these; u < these + (e - b); ++u) {
        put(*u, panel_first(panel), width, from, position);
        from += u->tiles * width;
      }
    }
  }

  void put(const unit& u, dim_t first, dim_t width, const T* from, dim_t position) const {
    kernels.put(u.tiles, width, from, position, results);
    const dim_t count = least(width, p.results - first), plane = p.result_plane();
    const dim_t rows = least(4, p.to[1] - u.y), length = least(4 * u.tiles, p.to[2] - u.x);
    const bool more = then.residual != nullptr || then.scale != nullptr;
    const bool relu = !more && then.function == activation::relu;
    const conv_rest<T> rest{then.scale == nullptr ? nullptr : then.scale + first,
                            shift == nullptr ? nullptr : shift + first, then.function};
    const bool whole = length == p.to[2] && length == 4 * u.tiles;
    for (dim_t y = 0; y < (whole ? 1 : rows); ++y) {
      const dim_t at = u.result + first * plane + y * p.whole[2];
      const dim_t size = whole ? rows * length : length;
      tiles.place_across(count, size, results + y * 4 * u.tiles * width, width,
                         bias == nullptr ? nullptr : bias + first, relu, result + at, plane);
      if (more || (then.function != activation::none && !relu))
        tiles.finish_rows(count, size, result + at, plane, rest,
                          then.residual == nullptr ? nullptr : then.residual + at);
    }
  }
};

/// In float, on instruction sets that have its kernels.
template <class T>
bool run_winograd(const conv_table<T>& table, conv_step& step, const conv_operands<T>* of) {
  if constexpr (std::is_same_v<T, float>) {
    const winograd_kernels<T>* const kernels = IKEBANA_CPU_DISPATCH(kernels_for_winograd<T>)();
    if (kernels == nullptr) return false;
    const conv_operands<T> none{}, &o = of == nullptr ? none : *of;
    winograd_run<T> run{{*kernels, table.tiles(), step.pass, o.source},
                        o.weights,
                        o.bias,
                        o.result,
                        o.then,
                        o.shift};
    if (!run.fit()) return false;
    if (of != nullptr) run.run();
    return true;
  } else {
    return false;
  }
}
IKEBANA_CPU_KERNEL(run_winograd)

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
