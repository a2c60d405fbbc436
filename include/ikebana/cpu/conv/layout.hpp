#pragma once

#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// Copies `height` rows of `pitch` elements of some channels' planes z, with zeros around them: the
/// first is at (top, left), others and their elements are `down` and `across` apart.
template <class T>
void copy_met(const conv_tiles<T>& tiles, const conv_pass& p, dim_t channels, const T* from,
              dim_t z, dim_t top, dim_t left, dim_t down, dim_t across, dim_t height, dim_t pitch,
              T* to, dim_t to_channel) {
  const dim_t step = conv_geometry::volume(p.from), row = p.from[2];
  const position_range y = positions_inside(height, top, down, p.from[1]),
                       x = positions_inside(pitch, left, across, row);
  if (z >= 0 && z < p.from[0] && x.begin < x.end && y.begin < y.end)
    return tiles.copy_rows(
        {channels, step, to_channel,
         from + (z * p.from[1] + top + y.begin * down) * row + left + x.begin * across, down * row,
         across, to, pitch, y.begin * pitch, y.end - y.begin, (height - y.end) * pitch, x.begin,
         x.end - x.begin});
  for (; channels > 0; --channels, to += to_channel) tiles.clear(to, height * pitch);
}

/// A copy of some channels of a source, with zeros around it, for rows of positions of which there
/// are `pitch` in each: `height` rows for each plane and column of the kernel, and for each of its
/// rows where neighbouring rows of positions share none. Kernel element k meets position (row,
/// column) at offset(k) + row * pitch + column.
struct conv_layout {
  dim_t pitch = 0, height = 0, slice = 0, channel = 0;
  bool apart = false;  // a copy for each row of the kernel

  conv_layout() = default;
  conv_layout(const conv_pass& p, dim_t columns, dim_t rows, dim_t line)
      : pitch{columns}, apart{p.stride[1] > 1 || rows < p.dilation[1]} {
    height = apart ? rows : rows + p.dilation[1] * (p.kernel[1] - 1);
    slice = height * pitch;
    channel = p.kernel[0] * kernel_rows(p) * p.kernel[2] * slice + line;
    // Not all channels in the same lines of the cache.
    if (channel % (8 * line) == 0) channel += line;
  }
  dim_t kernel_rows(const conv_pass& p) const { return apart ? p.kernel[1] : 1; }

  /// Where each kernel element of each channel begins.
  void list_offsets(const conv_pass& p, dim_t channels, std::int32_t* to) const {
    std::int32_t* at = to;
    for (dim_t kz = 0; kz < p.kernel[0]; ++kz)
      for (dim_t ky = 0; ky < p.kernel[1]; ++ky)
        for (dim_t kx = 0; kx < p.kernel[2]; ++kx)
          *at++ = static_cast<std::int32_t>(
              ((kz * kernel_rows(p) + (apart ? ky : 0)) * p.kernel[2] + kx) * slice +
              (apart ? 0 : ky * p.dilation[1] * pitch));
    repeat_list(to, p.taps(), channels, channel);
  }

  /// Fills `to` with `channels` channels of the image at `from`, for the positions from (z, y0, x0)
  /// on: some channels at a time, which stay in the first level of the cache for all columns.
  template <class T>
  void copy(const conv_tiles<T>& tiles, const conv_pass& p, dim_t channels, const T* from, dim_t z,
            dim_t y0, dim_t x0, T* to) const {
    const dim_t step = conv_geometry::volume(p.from);
    const dim_t some =
        1 + conv_costs::first_level_elements / (height * p.stride[1] * p.from[2] + 1);
    for (dim_t c = 0; c < channels; c += some)
      copy_some(tiles, p, least(channels - c, some), from + c * step, z, y0, x0, to + c * channel);
  }

 private:
  template <class T>
  void copy_some(const conv_tiles<T>& tiles, const conv_pass& p, dim_t channels, const T* from,
                 dim_t z, dim_t y0, dim_t x0, T* to) const {
    // What spills over a slice is written later, or lies between channels.
    for (dim_t kz = 0; kz < p.kernel[0]; ++kz)
      for (dim_t ky = 0; ky < kernel_rows(p); ++ky)
        for (dim_t kx = 0; kx < p.kernel[2]; ++kx, to += slice)
          copy_met(tiles, p, channels, from, p.met(0, z, kz), p.met(1, y0, ky), p.met(2, x0, kx),
                   p.stride[1], p.stride[2], height, pitch, to, channel);
  }
};

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
