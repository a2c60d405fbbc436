#pragma once

#include <algorithm>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/shapes.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/weights/job.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// Weights of many channels: these are the lanes of tiles of results times channels, at one or more
/// neighbouring places of the kernel, summed over positions from a copy of the image whose channels
/// lie side by side.
template <class T>
struct weights_by_lanes : weights_job<T> {
  using job_type = weights_job<T>;
  using shape_type = typename conv_tiles<T>::slide_shape;
  using job_type::accumulate, job_type::dw, job_type::dy, job_type::p, job_type::tiles, job_type::x;
  using job_type::dy_plane, job_type::plane;
  static constexpr dim_t line = job_type::line,
                         most_copied = conv_costs::copied_bytes / dim_t{sizeof(T)};

  const shape_type* shape = nullptr;
  dim_t lanes = 0, tile_lanes = 0;  // of one place of the kernel, of a tile
  dim_t kx_step = 0,
        kx_tiles = 0;  // places of a tile, tiles of a row of the kernel
  dim_t row_size = 0;  // the sums of a result
  dim_t results = 0, rows = 0, slots = 1, pitch = 0,
        slot_size = 0;  // of a block, a band
  bool whole = false;   // all channels and positions are copied at once
  // Parts of a thread's scratch.
  T *copy = nullptr, *sums = nullptr, *turned = nullptr;
  std::int32_t *image_at = nullptr, *dy_at = nullptr;

  explicit weights_by_lanes(const job_type& of) : job_type{of} {}

  /// Chooses the tile: of neighbouring places if the channels take one register, else of channels.
  /// False if there is none, or nothing fits.
  bool fit() {
    if (p.sources < tiles.width || tiles.width == 1) return false;
    const bool neighbours = p.kernel[2] >= 3 && p.dilation[2] == 1;
    const auto *three = find_shape(3), *four = find_shape(4);
    if (three == nullptr && four != nullptr && four->rows < conv_costs::few_tile_rows) return false;
    if (three == nullptr && four == nullptr) return false;
    const dim_t w = tiles.width;
    const auto waste = [&](dim_t n) { return parts(p.sources, n * w) * n * w; };
    if (neighbours && three != nullptr) {
      const auto places = [&](dim_t n) { return parts(p.kernel[2], n) * n; };
      return fit(four != nullptr && places(4) < places(3) ? four : three, 1);
    }
    // Few rows reach the products' rate less well.
    const dim_t tenths = four != nullptr && four->rows < conv_costs::few_tile_rows
                             ? conv_costs::few_rows_tenths
                             : 10;
    if (four != nullptr && (three == nullptr || tenths * waste(4) <= 10 * waste(3)))
      return fit(four, 4);
    return three != nullptr && fit(three, 3);
  }

  const shape_type* find_shape(dim_t registers) const {
    for (const shape_type* s = tiles.slides; s->rows > 1; ++s)
      if (s->registers == registers && s->rows <= p.results) return s;
    return nullptr;
  }

  bool fit(const shape_type* tile, dim_t registers) {
    shape = tile;
    lanes = registers * tiles.width;
    tile_lanes = shape->registers * tiles.width;
    kx_step = tile_lanes / lanes;
    kx_tiles = parts(p.kernel[2], kx_step);
    // Where most lanes are empty, sums over positions are cheaper.
    const dim_t computed = parts(p.sources, lanes) * lanes * kx_tiles * kx_step;
    if (plane() >= conv_costs::least_full_positions &&
        conv_costs::full_ninths * computed > 9 * p.sources * p.kernel[2])
      return false;
    row_size = p.kernel[0] * p.kernel[1] * kx_tiles * tile_lanes;
    // Results whose sums, and rows whose copy, stay in the cache.
    results = conv_costs::summed_bytes / dim_t{sizeof(T)} / (row_size * shape->rows) * shape->rows;
    if (results < shape->rows) return false;
    results = even_part(parts(p.results, shape->rows), results / shape->rows) * shape->rows;
    pitch = (p.to[2] - 1) * p.stride[2] + p.dilation[2] * (p.kernel[2] - 1) + 1;
    const dim_t reach = p.dilation[1] * (p.kernel[1] - 1) + 1;
    const dim_t room = most_copied - overhang();
    rows = least((room / (pitch * lanes) - reach) / p.stride[1] + 1,
                 conv_costs::band_positions / p.to[2]);
    if (rows < 1 || room / (pitch * lanes) < reach) return false;
    rows = even_part(p.to[1], rows);
    slot_size = height() * pitch * lanes;
    if (p.to[0] == 1 && rows == p.to[1]) {
      slots = least(room / slot_size, conv_costs::gathered_positions / plane());
      slots = slots < 1 ? 1 : even_part(p.batch, slots);
      // Weights are then written one result after the other.
      whole = slots == p.batch && p.kernel[0] == 1 && parts(p.sources, lanes) > 1 &&
              parts(p.sources, lanes) * slots * slot_size * dim_t{sizeof(T)} <=
                  conv_costs::all_copied_bytes;
      if (whole) results = shape->rows;
    }
    return place();
  }
  dim_t height() const { return (rows - 1) * p.stride[1] + p.dilation[1] * (p.kernel[1] - 1) + 1; }
  dim_t overhang() const { return tile_lanes + tiles.width; }
  dim_t block_size() const { return slots * slot_size; }

  /// Divides the calling thread's scratch. False if it is too small.
  bool place() {
    monotonic_scratch scratch = monotonic_scratch::of<T>(), lists = monotonic_scratch::of_lists();
    const dim_t blocks = whole ? parts(p.sources, lanes) : 1;
    scratch.allocate(copy, blocks * block_size() + overhang());
    scratch.allocate(sums, rounded_up(results, shape->rows) * row_size);
    scratch.allocate(turned, row_size + tiles.width);
    lists.allocate(image_at, slots * rows * p.to[2]);
    lists.allocate(dy_at, slots * rows * p.to[2]);
    return scratch.fits() && lists.fits();
  }

  void run() const {
    this->share_results(shape->rows, [this](dim_t begin, dim_t end) {
      weights_by_lanes mine = *this;
      mine.place();
      mine.run(begin, end);
    });
  }

  [[gnu::noinline]] void run(dim_t begin, dim_t end) const {
    dim_t n = 0;
    for (dim_t s = 0; s < slots; ++s)
      for (dim_t i = 0; i < rows; ++i)
        for (dim_t j = 0; j < p.to[2]; ++j, ++n) {
          image_at[n] = static_cast<std::int32_t>(
              s * slot_size + (i * p.stride[1] * pitch + j * p.stride[2]) * lanes);
          dy_at[n] = static_cast<std::int32_t>(s * p.result_image + i * p.to[2] + j);
        }
    if (whole) return run_whole(begin, end);
    for (dim_t c = 0; c < p.sources; c += lanes)
      for (dim_t r = begin; r < end; r += results) {
        const dim_t some = least(end - r, results);
        bool adds = false;
        for (dim_t slot = 0; slot < p.batch * p.to[0]; slot += slots)
          for (dim_t y = 0; y < p.to[1]; y += rows) {
            const dim_t used = least(p.batch * p.to[0] - slot, slots);
            for (dim_t kz = 0; kz < p.kernel[0]; ++kz) {
              copy_across(c, slot, used, kz, y, copy);
              sum_up(copy, c, r, some, slot, used, y, kz, adds);
            }
            adds = true;
          }
        finish(c, r, some);
      }
  }

  void run_whole(dim_t begin, dim_t end) const {
    for (dim_t c = 0; c < p.sources; c += lanes)
      copy_across(c, 0, slots, 0, 0, copy + c / lanes * block_size());
    for (dim_t r = begin; r < end; r += results)
      for (dim_t c = 0; c < p.sources; c += lanes) {
        const dim_t some = least(end - r, results);
        sum_up(copy + c / lanes * block_size(), c, r, some, 0, slots, 0, 0, false);
        finish(c, r, some);
      }
  }

  /// Tiles of a kernel of one element add up in place, but for the last rows'.
  bool in_place() const { return p.taps() == 1; }

  /// Adds a band, of one plane of the kernel, to the sums of `some` results from r on.
  void sum_up(const T* image, dim_t c, dim_t r0, dim_t some, dim_t slot, dim_t used, dim_t y,
              dim_t kz, bool adds) const {
    const T zeros[conv_tiles<T>::most_rows] = {};
    conv_job<T> job{};
    job.weight_step = dy_plane();
    job.start = zeros;
    const dim_t positions = used * least(p.to[1] - y, rows) * p.to[2];
    const dim_t z = slot % p.to[0], first_image = slot / p.to[0];
    const T* const dy_from = dy + first_image * p.result_image + (z * p.to[1] + y) * p.to[2];
    const dim_t depth = even_part(positions, conv_costs::positions_at_once);
    for (dim_t at = 0; at < positions; at += depth, adds = true) {
      job.depth = least(positions - at, depth);
      job.weight_at = dy_at + at;
      job.image_at = image_at + at;
      for (dim_t ky = 0; ky < p.kernel[1]; ++ky)
        for (dim_t t = 0; t < kx_tiles; ++t) {
          job.image = image + (ky * p.dilation[1] * pitch + first_place(t) * p.dilation[2]) * lanes;
          T* const to = sums + ((kz * p.kernel[1] + ky) * kx_tiles + t) * tile_lanes;
          for (dim_t r = 0; r < some; r += shape->rows) {
            const bool direct = in_place() && r0 + r + shape->rows <= p.results;
            job.weights = dy_from + first_row(r0 + r) * dy_plane();
            job.out = direct ? dw + (r0 + r) * p.weight_result + c : to + r * row_size;
            job.out_step = direct ? p.weight_result : row_size;
            job.count = direct ? least(p.sources - c, lanes) : tile_lanes;
            job.adds = adds || (direct && accumulate);
            shape->whole(job);
          }
        }
    }
  }

  /// The last tile ends with the kernel.
  dim_t first_place(dim_t t) const {
    const dim_t last = p.kernel[2] - kx_step;
    return t * kx_step > last ? (last > 0 ? last : 0) : t * kx_step;
  }
  /// The last rows' tile ends with the results.
  dim_t first_row(dim_t r) const { return least(r, p.results - shape->rows); }

  /// Puts the sums where they belong.
  void finish(dim_t c, dim_t r0, dim_t some) const {
    const dim_t channels = least(p.sources - c, lanes), size = channels * p.taps();
    dim_t r = 0;
    if (in_place()) r = some - (r0 + some == p.results ? p.results % shape->rows : 0);
    for (; r < some; ++r) {
      const dim_t first = r / shape->rows * shape->rows;
      const dim_t row = first + r0 + r - first_row(r0 + first);
      T* const to = dw + (r0 + r) * p.weight_result + c * p.weight_source;
      turn(sums + row * row_size, channels);
      if (accumulate)
        tiles.finish_rows(1, size, to, 0, {nullptr, nullptr, {}}, turned);
      else
        tiles.place_rows(1, size, turned, 0, to, 0, 1);
    }
  }

  /// A result's weights from the sums of its tiles, whose lanes are the channels.
  void turn(T* from, dim_t channels) const {
    const dim_t taps = p.taps();
    if (kx_tiles * kx_step != p.kernel[2]) {
      // Neighbouring tiles may share places.
      T *to = from, *tile = from;
      for (dim_t row = 0; row < p.kernel[0] * p.kernel[1]; ++row)
        for (dim_t t = 0; t < kx_tiles; ++t, tile += tile_lanes) {
          const dim_t skip = t * kx_step - first_place(t);
          const dim_t count = least(kx_step, p.kernel[2] - first_place(t)) - skip;
          if (to != tile + skip * lanes)
            std::copy(tile + skip * lanes, tile + (skip + count) * lanes, to);
          to += count * lanes;
        }
    }
    tiles.pack_across(turned, taps, from, lanes, channels, taps);
  }

  /// Copies what the band's positions meet of some channels at a plane of the kernel, channels side
  /// by side.
  void copy_across(dim_t c, dim_t slot, dim_t used, dim_t kz, dim_t y, T* to) const {
    for (dim_t s = 0; s < used; ++s)
      copy_across(c, (slot + s) / p.to[0],
                  (slot + s) % p.to[0] * p.stride[0] - p.padding[0] + kz * p.dilation[0],
                  y * p.stride[1] - p.padding[1], to + s * slot_size);
  }
  void copy_across(dim_t c, dim_t image, dim_t z, dim_t top, T* to) const {
    const dim_t channels = least(p.sources - c, lanes);
    if (z < 0 || z >= p.from[0]) return tiles.clear(to, slot_size);
    const dim_t from_plane = conv_geometry::volume(p.from);
    const T* const from = x + image * p.source_image + c * from_plane + z * p.from[1] * p.from[2];
    const dim_t lead = p.padding[2] > 0 ? least(p.padding[2], pitch) : 0;
    const dim_t skip = p.padding[2] < 0 ? -p.padding[2] : 0;
    dim_t length = least(p.from[2] - skip, pitch - lead);
    if (length < 0) length = 0;
    for (dim_t i = height(); i > 0; --i, ++top, to += pitch * lanes) {
      if (top < 0 || top >= p.from[1]) {
        tiles.clear(to, pitch * lanes);
        continue;
      }
      if (lead > 0) tiles.clear(to, lead * lanes);
      if (length > 0)
        tiles.pack_across(to + lead * lanes, lanes, from + top * p.from[2] + skip, from_plane,
                          length, channels);
      if (lead + length < pitch)
        tiles.clear(to + (lead + length) * lanes, (pitch - lead - length) * lanes);
    }
  }
};

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
