#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv_layout.hpp"
#include "ikebana/cpu/conv_pass.hpp"
#include "ikebana/cpu/conv_tiles.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

// The gradient of a convolution's weights, by bands of positions. Where there are many channels,
// these are the lanes: tiles of output channels times input channels at one or more places of the
// kernel, summed over positions, from a copy of the image whose channels lie side by side. Where
// there are few, positions are the lanes and every tile ends with sums over them. Nothing but dy
// and x (with the zeros around it) is ever multiplied.
namespace ikebana::cpu::detail {

template <class T>
struct weights_run {
  static constexpr dim_t line = conv_plan<T>::line, kib = conv_plan<T>::kib;

  const conv_tiles<T>& tiles;
  const conv_pass& p;
  const T *x, *dy;
  T* dw;
  bool accumulate;

  dim_t plane() const { return p.to[1] * p.to[2]; }
  dim_t dy_plane() const { return conv_geometry::volume(p.to); }
  static dim_t least(dim_t a, dim_t b) { return a < b ? a : b; }
  static dim_t parts(dim_t n, dim_t most) { return conv_plan<T>::parts(n, most); }
  static dim_t even_part(dim_t n, dim_t most) { return conv_plan<T>::even_part(n, most); }

  const typename conv_tiles<T>::slide_shape* lanes_shape(dim_t registers) const {
    for (const auto& s : tiles.slides)
      if (s.registers == registers && s.rows > 1 && s.rows <= p.results) return &s;
    return nullptr;
  }

  bool run() const {
    const bool neighbours = p.kernel[2] >= 3 && p.dilation[2] == 1;
    if (p.sources >= tiles.width && tiles.width > 1) {
      const auto *three = lanes_shape(3), *four = lanes_shape(4);
      const dim_t w = tiles.width;
      const auto waste = [&](dim_t n) { return parts(p.sources, n * w) * n * w; };
      if (neighbours && three != nullptr) return by_lanes(*three, 1);
      if (four != nullptr && (three == nullptr || waste(4) <= waste(3))) return by_lanes(*four, 4);
      if (three != nullptr) return by_lanes(*three, 3);
    }
    return by_dots();
  }

  /// Tiles of shape.rows output channels and shape.registers registers: of neighbouring places of
  /// the kernel if the channels take one register, else of channels.
  bool by_lanes(const typename conv_tiles<T>::slide_shape& shape, dim_t registers) const {
    const dim_t w = tiles.width, lanes = registers * w, tile_lanes = shape.registers * w;
    const dim_t kx_step = tile_lanes / lanes;  // kernel elements of a tile
    const dim_t kx_tiles = parts(p.kernel[2], kx_step);
    const dim_t places = p.kernel[0] * p.kernel[1] * kx_tiles;
    const dim_t tile_size = shape.rows * tile_lanes;
    // Output channels whose sums, and rows whose copy, stay in the cache.
    dim_t results = 192 * kib / (places * tile_size) * shape.rows;
    if (results < shape.rows) return by_dots();
    results = even_part(parts(p.results, shape.rows), results / shape.rows) * shape.rows;
    const dim_t pitch = (p.to[2] - 1) * p.stride[2] + p.dilation[2] * (p.kernel[2] - 1) + 1;
    const dim_t reach = p.dilation[1] * (p.kernel[1] - 1) + 1;
    const dim_t room = 208 * kib - tile_lanes - w;
    dim_t rows = (room / (pitch * lanes) - reach) / p.stride[1] + 1;
    rows = least(rows, 2048 / p.to[2]);
    if (rows < 1 || room / (pitch * lanes) < reach) return by_dots();
    rows = even_part(p.to[1], rows);
    const dim_t height = (rows - 1) * p.stride[1] + reach, slot_size = height * pitch * lanes;
    dim_t slots = 1;
    if (p.to[0] == 1 && rows == p.to[1]) {
      slots = least(room / slot_size, 512 / plane());
      slots = slots < 1 ? 1 : even_part(p.batch, slots);
    }
    T* const copy = reinterpret_cast<T*>(thread_scratch());
    T* const sums = copy + parts(slots * slot_size + tile_lanes + w, line) * line;
    const dim_t sums_size = parts(results, shape.rows) * places * tile_size;
    std::int32_t* const image_at = reinterpret_cast<std::int32_t*>(sums + sums_size);
    std::int32_t* const dy_at = image_at + slots * rows * p.to[2];
    if (reinterpret_cast<T*>(dy_at + slots * rows * p.to[2]) >
        reinterpret_cast<T*>(thread_scratch()) + conv_plan<T>::total)
      return by_dots();
    dim_t n = 0;
    for (dim_t s = 0; s < slots; ++s)
      for (dim_t i = 0; i < rows; ++i)
        for (dim_t j = 0; j < p.to[2]; ++j, ++n) {
          image_at[n] = static_cast<std::int32_t>(
              s * slot_size + (i * p.stride[1] * pitch + j * p.stride[2]) * lanes);
          dy_at[n] = static_cast<std::int32_t>(s * p.result_image + i * p.to[2] + j);
        }

    const T zeros[conv_tiles<T>::most_rows] = {};
    conv_job<T> job{};
    job.weight_step = dy_plane();
    job.start = zeros;
    job.out_step = tile_lanes;
    job.count = tile_lanes;
    for (dim_t c = 0; c < p.sources; c += lanes) {
      const dim_t channels = least(p.sources - c, lanes);
      for (dim_t r0 = 0; r0 < p.results; r0 += results) {
        const dim_t some = least(p.results - r0, results);
        bool fresh = true;
        for (dim_t slot = 0; slot < p.batch * p.to[0]; slot += slots)
          for (dim_t y = 0; y < p.to[1]; y += rows) {
            const dim_t used_slots = least(p.batch * p.to[0] - slot, slots);
            const dim_t positions = used_slots * least(p.to[1] - y, rows) * p.to[2];
            const dim_t z = slot % p.to[0], image = slot / p.to[0];
            const T* const dy_from = dy + image * p.result_image + (z * p.to[1] + y) * p.to[2];
            const dim_t depth = even_part(positions, 384);
            for (dim_t kz = 0; kz < p.kernel[0]; ++kz) {
              for (dim_t s = 0; s < used_slots; ++s)
                copy_across(c, channels, lanes, image + s,
                            z * p.stride[0] - p.padding[0] + kz * p.dilation[0], y, height, pitch,
                            copy + s * slot_size);
              for (dim_t at = 0; at < positions; at += depth) {
                job.depth = least(positions - at, depth);
                job.weight_at = dy_at + at;
                job.image_at = image_at + at;
                job.adds = !fresh || at > 0;
                for (dim_t ky = 0; ky < p.kernel[1]; ++ky)
                  for (dim_t t = 0; t < kx_tiles; ++t) {
                    const dim_t kx = first_place(t, kx_step);
                    job.image = copy + (ky * p.dilation[1] * pitch + kx * p.dilation[2]) * lanes;
                    T* out = sums + ((kz * p.kernel[1] + ky) * kx_tiles + t) *
                                        parts(results, shape.rows) * tile_size;
                    for (dim_t r = 0; r < some; r += shape.rows, out += tile_size) {
                      job.weights = dy_from + first_row(r0 + r, shape.rows) * dy_plane();
                      job.out = out;
                      shape.whole(job);
                    }
                  }
              }
            }
            fresh = false;
          }
        for (dim_t kz = 0; kz < p.kernel[0]; ++kz)
          for (dim_t ky = 0; ky < p.kernel[1]; ++ky)
            for (dim_t t = 0; t < kx_tiles; ++t)
              for (dim_t r = 0; r < some; ++r) {
                const dim_t group = r / shape.rows;
                const dim_t row = r0 + r - first_row(r0 + group * shape.rows, shape.rows);
                const T* from =
                    sums +
                    (((kz * p.kernel[1] + ky) * kx_tiles + t) * parts(results, shape.rows) +
                     group) *
                        tile_size +
                    row * tile_lanes;
                // Neighbouring tiles may share places.
                for (dim_t i = t * kx_step - first_place(t, kx_step); i < kx_step; ++i) {
                  const dim_t kx = first_place(t, kx_step) + i;
                  if (kx >= p.kernel[2]) break;
                  add_to(dw + (r0 + r) * p.weight_result + c * p.weight_source +
                             (kz * p.kernel[1] + ky) * p.kernel[2] + kx,
                         from + i * lanes, channels);
                }
              }
      }
    }
    return true;
  }

  /// The last tile ends with the kernel.
  dim_t first_place(dim_t t, dim_t step) const {
    const dim_t last = p.kernel[2] - step;
    return t * step > last ? (last > 0 ? last : 0) : t * step;
  }
  /// The last rows' tile ends with the results.
  dim_t first_row(dim_t r, dim_t rows) const { return least(r, p.results - rows); }

  void add_to(T* to, const T* from, dim_t channels) const {
    for (dim_t i = 0; i < channels; ++i, to += p.weight_source)
      *to = accumulate ? *to + from[i] : from[i];
  }

  /// Copies `height` rows of a plane from what output row y meets first, channels side by side.
  void copy_across(dim_t c, dim_t channels, dim_t lanes, dim_t image, dim_t z, dim_t y,
                   dim_t height, dim_t pitch, T* to) const {
    if (z < 0 || z >= p.from[0]) return tiles.clear(to, height * pitch * lanes);
    const dim_t from_plane = conv_geometry::volume(p.from);
    const T* const from = x + image * p.source_image + c * from_plane + z * p.from[1] * p.from[2];
    const dim_t top = y * p.stride[1] - p.padding[1];
    dim_t lead = p.padding[2] > 0 ? least(p.padding[2], pitch) : 0;
    const dim_t skip = p.padding[2] < 0 ? -p.padding[2] : 0;
    dim_t length = least(p.from[2] - skip, pitch - lead);
    if (length < 0) length = 0;
    for (dim_t i = 0; i < height; ++i, to += pitch * lanes) {
      if (top + i < 0 || top + i >= p.from[1]) {
        tiles.clear(to, pitch * lanes);
        continue;
      }
      if (lead > 0) tiles.clear(to, lead * lanes);
      if (length > 0)
        tiles.pack_across(to + lead * lanes, lanes, from + (top + i) * p.from[2] + skip, from_plane,
                          length, channels);
      if (lead + length < pitch)
        tiles.clear(to + (lead + length) * lanes, (pitch - lead - length) * lanes);
    }
  }

  bool by_dots() const {
    const dim_t copy_room = 256 * kib;
    dim_t channels = p.sources, rows = p.to[1];
    conv_layout layout;
    const auto lay_out = [&] {
      layout = conv_layout{p, p.to[2], rows, false, true, line};
      const conv_layout apart{p, p.to[2], rows, true, true, line};
      if (apart.channel < layout.channel) layout = apart;
      return layout.channel * channels <= copy_room;
    };
    while (!lay_out()) {
      if (rows > 4)
        rows = parts(rows, 2);
      else if (channels > 1)
        channels = parts(channels, 2);
      else if (rows > 1)
        rows = parts(rows, 2);
      else
        return false;
    }
    rows = even_part(p.to[1], rows);
    lay_out();
    const dim_t taps = p.taps(), overhang = 2 * line + tiles.width;
    dim_t slots = 1;
    if (p.to[0] == 1 && rows == p.to[1]) {
      slots = least(copy_room / (layout.channel * channels), 4096 / plane());
      slots = slots < 1 ? 1 : even_part(p.batch, slots);
    }
    T* const copy = reinterpret_cast<T*>(thread_scratch());
    const dim_t size = slots * layout.channel * channels + overhang;
    std::int32_t* const offsets = reinterpret_cast<std::int32_t*>(copy + parts(size, line) * line);
    if (reinterpret_cast<T*>(offsets + channels * taps) > copy + conv_plan<T>::total) return false;
    dim_t n = 0;
    for (dim_t c = 0; c < channels; ++c)
      for (dim_t kz = 0; kz < p.kernel[0]; ++kz)
        for (dim_t ky = 0; ky < p.kernel[1]; ++ky)
          for (dim_t kx = 0; kx < p.kernel[2]; ++kx)
            offsets[n++] =
                static_cast<std::int32_t>(c * layout.channel + layout.offset(kz, ky, kx));

    dot_job<T> job{};
    job.dy_row = dy_plane();
    job.dy_image = p.result_image;
    job.x_image = layout.channel * channels;
    for (dim_t c = 0; c < p.sources; c += channels) {
      const dim_t some = least(p.sources - c, channels), depth = some * taps;
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
          job.x = copy;
          for (dim_t r = 0; r < p.results;) {
            const auto& shape = shape_for(tiles.dots, p.results - r);
            job.dy = dy + image * p.result_image + r * dy_plane() + (z * p.to[1] + y) * p.to[2];
            for (dim_t k = 0; k < depth; k += shape.taps) {
              std::int32_t some_offsets[conv_tiles<T>::most_taps];
              T sums[conv_tiles<T>::most_sums];
              const dim_t used = least(depth - k, shape.taps);
              for (dim_t s = 0; s < shape.taps; ++s)
                some_offsets[s] = offsets[k + (s < used ? s : 0)];
              job.offsets = some_offsets;
              shape.tile(job, sums);
              for (dim_t i = 0; i < shape.rows; ++i)
                for (dim_t s = 0; s < used; ++s) {
                  T& to = dw[(r + i) * p.weight_result + c * taps + k + s];
                  to = adds ? to + sums[i * shape.taps + s] : sums[i * shape.taps + s];
                }
            }
            r += shape.rows;
          }
          adds = true;
        }
    }
    return true;
  }

  /// Without any copy, for kernels so large that none fits.
  void run_plainly() const {
    const dim_t taps = p.taps();
    for (dim_t r = 0; r < p.results; ++r)
      for (dim_t c = 0; c < p.sources; ++c)
        for (dim_t k = 0; k < taps; ++k) {
          const std::array<dim_t, 3> tap{k / (p.kernel[1] * p.kernel[2]),
                                         k / p.kernel[2] % p.kernel[1], k % p.kernel[2]};
          T sum{};
          for (dim_t o = 0; o < p.batch * dy_plane(); ++o) {
            const dim_t b = o / dy_plane(), at = o % dy_plane();
            const std::array<dim_t, 3> place{at / plane(), at / p.to[2] % p.to[1], at % p.to[2]};
            dim_t from = b * p.source_image + c * conv_geometry::volume(p.from), step = 1;
            bool seen = true;
            for (std::size_t d = 3; d-- > 0; step *= p.from[d]) {
              const dim_t i = place[d] * p.stride[d] - p.padding[d] + tap[d] * p.dilation[d];
              seen = seen && i >= 0 && i < p.from[d];
              from += i * step;
            }
            if (seen) sum += dy[b * p.result_image + r * dy_plane() + at] * x[from];
          }
          T& to = dw[r * p.weight_result + c * taps + k];
          to = accumulate ? to + sum : sum;
        }
  }
};

template <class T>
void weights_gradient(const conv_tiles<T>& tiles, const conv_geometry& g, const T* x, const T* dy,
                      T* dw, bool accumulate) {
  const conv_pass p = forward_pass(g);
  const dim_t group_size = p.results * p.weight_result;
  for (dim_t group = 0; group < g.groups; ++group) {
    T* const to = dw + group * group_size;
    if (g.batch == 0 || conv_geometry::volume(p.to) <= 0 || conv_geometry::volume(p.from) <= 0) {
      if (!accumulate) tiles.clear(to, group_size);
      continue;
    }
    if (group_size == 0) continue;
    const weights_run<T> run{tiles,
                             p,
                             x + group * p.sources * conv_geometry::volume(p.from),
                             dy + group * p.results * conv_geometry::volume(p.to),
                             to,
                             accumulate};
    if (!run.run()) run.run_plainly();
  }
}

}  // namespace ikebana::cpu::detail
