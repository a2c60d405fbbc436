#pragma once

#include <cstdint>
#include <numeric>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// How one dimension of the source is copied: once for each residue of the kernel elements'
/// distances by the stride, so that neighbouring positions read neighbouring elements; or, dense,
/// once for each kernel element.
struct conv_axis {
  dim_t kernel, stride, dilation, phases;
  bool dense;

  conv_axis() = default;
  conv_axis(dim_t k, dim_t s, dim_t d, bool is_dense)
      : kernel{k}, stride{s}, dilation{d}, phases{k}, dense{is_dense} {
    const dim_t period = s == 1 ? 1 : s / std::gcd(s, d);
    if (!dense && period < k) phases = period;
  }
  dim_t start(dim_t phase) const { return dense ? phase * dilation : phase * dilation % stride; }
  // Divisions cost more than the whole of a small convolution's row.
  dim_t phase(dim_t k) const { return dense || k < phases ? k : phases == 1 ? 0 : k % phases; }
  dim_t shift(dim_t k) const {
    return dense ? 0 : stride == 1 ? k * dilation : k * dilation / stride;
  }
  dim_t most_shift() const { return shift(kernel - 1); }
};

/// A copy of some channels of a source as `height` rows of `pitch` elements for each channel, plane
/// of the kernel and phase, with zeros around it: kernel element k meets position (row, column) at
/// offset(k) + row * pitch + column.
struct conv_layout {
  conv_axis y, x;
  dim_t planes, columns, rows;  // of the kernel; of positions
  dim_t pitch, height, slice, channel;
  dim_t beyond;  // zeros after the last row, which later rows would begin with

  conv_layout() = default;
  [[gnu::noinline]] conv_layout(const conv_pass& p, dim_t column_count, dim_t row_count,
                                bool dense_y, bool dense_x, dim_t line)
      : y{p.kernel[1], p.stride[1], p.dilation[1], dense_y},
        x{p.kernel[2], p.stride[2], p.dilation[2], dense_x},
        planes{p.kernel[0]},
        columns{column_count},
        rows{row_count},
        pitch{column_count},
        height{row_count + y.most_shift()} {
    // The zeros before a row also end the one above it.
    const dim_t needed = columns + x.most_shift();
    for (dim_t f = 0; f < x.phases; ++f) {
      const dim_t lead = first_column(p, f, 0), end = end_column(p, f, 0);
      if (pitch < (end < needed ? end : needed)) pitch = end < needed ? end : needed;
      if (pitch < needed - lead) pitch = needed - lead;
    }
    if (column_count < p.to[2] && pitch < needed) pitch = needed;
    beyond = needed > pitch ? needed - pitch : 0;
    slice = height * pitch + beyond;
    channel = planes * y.phases * x.phases * slice + line;
    // Not all channels in the same lines of the cache.
    if (channel % (8 * line) == 0) channel += line;
  }

  /// The columns of a phase's rows that lie within the source, for positions from x0 on.
  dim_t first_column(const conv_pass& p, dim_t phase, dim_t x0) const {
    const dim_t before = p.padding[2] - x.start(phase) - x0 * x.stride;
    return before <= 0 ? 0 : (before + x.stride - 1) / x.stride;
  }
  dim_t end_column(const conv_pass& p, dim_t phase, dim_t x0) const {
    const dim_t reach = p.met[2] + p.padding[2] - x.start(phase) - x0 * x.stride;
    return reach <= 0 ? 0 : (reach + x.stride - 1) / x.stride;
  }

  dim_t offset(dim_t kz, dim_t ky, dim_t kx) const {
    return ((kz * y.phases + y.phase(ky)) * x.phases + x.phase(kx)) * slice + y.shift(ky) * pitch +
           x.shift(kx);
  }
  /// Where each kernel element of each channel begins.
  void list_offsets(const conv_pass& p, dim_t channels, std::int32_t* to) const {
    std::int32_t* at = to;
    for (dim_t kz = 0; kz < p.kernel[0]; ++kz)
      for (dim_t ky = 0; ky < p.kernel[1]; ++ky)
        for (dim_t kx = 0; kx < p.kernel[2]; ++kx)
          *at++ = static_cast<std::int32_t>(offset(kz, ky, kx));
    repeat_list(to, p.taps(), channels, channel);
  }

  /// Fills `to` with `channels` channels of the image at `from`, for the positions from (z, y0, x0)
  /// on: some channels at a time, which stay in the first level of the cache for all phases.
  template <class T>
  void copy(const conv_tiles<T>& tiles, const conv_pass& p, dim_t channels, const T* from, dim_t z,
            dim_t y0, dim_t x0, T* to) const {
    const dim_t step = conv_geometry::volume(p.from);
    dim_t some = channels;
    if (y.phases * x.phases > 1)
      some = 1 + conv_costs::first_level_elements / (height * y.stride * p.from[2]);
    for (dim_t c = 0; c < channels; c += some)
      copy_some(tiles, p, least(channels - c, some), from + c * step, z, y0, x0, to + c * channel,
                dim_t{1});
  }
  /// The same of a channel whose elements, and the copy's, are registers, from position 0 on.
  template <class T>
  void copy_registers(const conv_tiles<T>& tiles, const conv_pass& p, const T* from, T* to) const {
    copy_some(tiles, p, dim_t{1}, from, dim_t{0}, dim_t{0}, dim_t{0}, to, tiles.width);
  }

 private:
  template <class T>
  void copy_some(const conv_tiles<T>& tiles, const conv_pass& p, dim_t channels, const T* from,
                 dim_t z, dim_t y0, dim_t x0, T* to, dim_t lanes) const {
    const dim_t plane = p.from[1] * p.from[2], step = p.from[0] * plane;
    constexpr dim_t most = 4;
    dim_t leads[most] = {-1, -1, -1, -1}, stops[most] = {};
    // What spills over a slice is written later, or lies between channels.
    for (dim_t kz = 0; kz < planes; ++kz) {
      const dim_t at_z = z * p.stride[0] - p.padding[0] + kz * p.dilation[0];
      const bool seen = at_z >= 0 && at_z < p.met[0];
      for (dim_t fy = 0; fy < y.phases; ++fy) {
        const dim_t top = y0 * y.stride + y.start(fy) - p.padding[1];
        const dim_t above = clip((-top + y.stride - 1) / y.stride, top < 0);
        const dim_t last = clip((p.met[1] - top + y.stride - 1) / y.stride, top < p.met[1]);
        for (dim_t fx = 0; fx < x.phases; ++fx, to += slice * lanes) {
          // Divisions take longer than to remember these.
          dim_t lead = leads[fx % most], stop = stops[fx % most];
          if (lead < 0 || x.phases > most) {
            lead = leads[fx % most] = clip_column(first_column(p, fx, x0));
            stop = stops[fx % most] = clip_column(end_column(p, fx, x0));
          }
          if (!seen || stop <= lead || last <= above) {
            for (dim_t c = 0; c < channels; ++c)
              tiles.clear(to + c * channel * lanes, slice * lanes);
            continue;
          }
          const T* const row = from + ((at_z * p.from[1] + top + above * y.stride) * p.from[2] +
                                       (x0 + lead) * x.stride + x.start(fx) - p.padding[2]) *
                                          lanes;
          const dim_t from_step = y.stride * p.from[2], n = last - above, length = stop - lead;
          if (lanes == 1) {
            tiles.copy_rows({channels, step, channel, row, from_step, x.stride, to, pitch,
                             above * pitch, n, slice - last * pitch, lead, length});
            continue;
          }
          // Each row of registers.
          if (above > 0) tiles.clear(to, above * pitch * lanes);
          tiles.copy_lines({n, from_step * lanes, pitch * lanes, row, x.stride * lanes, 1,
                            to + above * pitch * lanes, lanes, lead * lanes, length,
                            (pitch - stop) * lanes, 0, lanes});
          if (slice > last * pitch)
            tiles.clear(to + last * pitch * lanes, (slice - last * pitch) * lanes);
        }
      }
    }
  }

  dim_t clip_column(dim_t n) const { return n < pitch ? n : pitch; }
  dim_t clip(dim_t n, bool any) const { return !any ? 0 : n < height ? n : height; }
};

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
