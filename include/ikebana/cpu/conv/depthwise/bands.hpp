#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/depthwise/kernels.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/parallel.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// How a convolution of few channels a group, with groups as lanes, is divided into bands of
/// positions, and what each result of a band is a sum of. Backward by data has a part for each
/// residue of the positions by the strides.
template <class T>
struct depthwise_bands {
  static constexpr dim_t most_parts = 64;
  using extents = std::array<dim_t, 3>;

  /// A dimension: position t of a part reads t step + low ... t step + high of the source, and is
  /// position t spread + residue of the result.
  struct axis {
    dim_t step, spread, count, low, high;
  };
  struct part {
    conv_pass p;
    dim_t terms, results, result_count;
  };

  const depthwise_kernels<T>& kernels;
  const conv_geometry& g;
  conv_direction direction;
  dim_t width, sources, results, taps, group_size;  // of a group
  extents from, to;                                 // the source's, the result's
  axis axes[3];
  dim_t part_count = 0, rows = 0, columns = 0, height = 0, pitch = 0;  // of a band
  // Parts of a thread's scratch and lists.
  part* parts = nullptr;
  T *x = nullptr, *y = nullptr, *w = nullptr, *sums = nullptr;
  lane_term* terms = nullptr;
  lane_results* lists = nullptr;

  depthwise_bands(const depthwise_kernels<T>& k, const conv_geometry& of, conv_direction d)
      : kernels{k}, g{of}, direction{d}, width{k.width} {
    const bool back = d == conv_direction::data;
    sources = (back ? g.out_channels : g.in_channels) / g.groups;
    results = (back ? g.in_channels : g.out_channels) / g.groups;
    taps = conv_geometry::volume(g.kernel);
    group_size = sources * results * taps;
    from = back ? g.out : g.in;
    to = back ? g.in : g.out;
  }

  conv_pass pass(dim_t i) const {
    if (direction != conv_direction::data) return forward_pass(g);
    const extents& s = g.stride;
    return backward_pass(g, {i / (s[1] * s[2]), i / s[2] % s[1], i % s[2]});
  }

  /// Divides the work and the calling thread's scratch. False where it is too small.
  bool fit() {
    const bool back = direction == conv_direction::data;
    part_count = back ? conv_geometry::volume(g.stride) : 1;
    if (part_count > most_parts) return false;
    for (std::size_t d = 0; d < 3; ++d)
      axes[d] = back ? axis{1, g.stride[d], detail::parts(to[d], g.stride[d]), 0, 0}
                     : axis{g.stride[d], 1, to[d], 0, 0};
    bool first = true;
    for (dim_t i = 0; i < part_count; ++i) {
      const conv_pass p = pass(i);
      if (p.taps() == 0) continue;
      for (std::size_t d = 0; d < 3; ++d) {
        const dim_t low = -p.padding[d], high = low + (p.kernel[d] - 1) * p.dilation[d];
        axes[d].low = first ? low : least(axes[d].low, low);
        axes[d].high = first ? high : std::max(axes[d].high, high);
      }
      first = false;
    }
    rows = axes[1].count;
    columns = axes[2].count;
    // Near the first-level cache; but bands overlap.
    const dim_t room =
        (width * dim_t{sizeof(T)} == conv_costs::line_bytes ? conv_costs::wide_band_bytes
                                                            : conv_costs::narrow_band_bytes) /
        dim_t{sizeof(T)};
    while ((lay_out() > room || part_count * quads() > conv_costs::most_quads) &&
           rows * columns > 1) {
      if (rows > 1)
        rows = detail::parts(axes[1].count, detail::parts(axes[1].count, rows - 1));
      else
        columns = (columns + 1) / 2;
    }
    return place();
  }
  /// Elements of a band.
  dim_t lay_out() {
    height = (rows - 1) * axes[1].step + axes[1].high - axes[1].low + 1;
    pitch = (columns - 1) * axes[2].step + axes[2].high - axes[2].low + 1;
    return (slabs() * slab() + result_size()) * width;
  }
  dim_t slab() const { return height * pitch; }
  dim_t slabs() const { return sources * g.kernel[0]; }
  dim_t result_size() const { return rows * axes[1].spread * columns * axes[2].spread; }
  dim_t quads() const { return detail::parts(columns, lane_results::most) * rows; }

  bool place() {
    monotonic_scratch scratch = monotonic_scratch::of<T>(), places = monotonic_scratch::of_lists();
    const dim_t beyond = lane_results::most * width * std::max(g.stride[2], g.dilation[2]);
    const bool by_tap = direction == conv_direction::weights;
    const dim_t tap_quads = slabs() * g.kernel[1] * detail::parts(g.kernel[2], lane_results::most);
    places.allocate(parts, part_count);
    scratch.allocate(x, slabs() * slab() * width + beyond + 2 * width);
    scratch.allocate(y, (result_size() + 1) * width);
    scratch.allocate(w, (group_size + 1) * width);
    scratch.allocate(sums, 4 * width);
    places.allocate(terms,
                    by_tap ? rows : slabs() * g.kernel[1] * (part_count > 1 ? g.stride[2] : 1));
    places.allocate(lists, by_tap ? tap_quads : quads() * part_count);
    if (!scratch.fits() || !places.fits()) return false;
    // Results that are not wanted meet what is behind, of which subnormal numbers take long.
    kernels.clear(x + slabs() * slab() * width, beyond);
    return true;
  }

  /// The band from (y0, x0) on: what each part sums up.
  void list(dim_t y0, dim_t x0) {
    if (direction == conv_direction::weights) return list_weights(y0, x0);
    const auto lane = [&](dim_t i) { return static_cast<std::int32_t>(i * width); };
    const dim_t row = columns * axes[2].spread;
    dim_t n = 0, m = 0;
    for (dim_t i = 0; i < part_count; ++i) {
      part& now = parts[i];
      now.p = pass(i);
      now.terms = n;
      now.results = m;
      const conv_pass& p = now.p;
      const bool any = p.taps() > 0;
      for (dim_t ky = 0; any && ky < p.kernel[1]; ++ky)
        for (dim_t s = 0; s < sources; ++s)
          for (dim_t kz = 0; kz < p.kernel[0]; ++kz)
            terms[n++] = {lane((s * p.kernel[0] + kz) * slab() +
                               (ky * p.dilation[1] - p.padding[1] - axes[1].low) * pitch -
                               p.padding[2] - axes[2].low),
                          lane(p.weight_first + s * p.weight_source + kz * p.weight_tap[0] +
                               ky * p.weight_tap[1])};
      const dim_t of_row = sources * p.kernel[0];
      for (dim_t t = 0; t < rows && y0 + t < p.to[1]; ++t) {
        const auto seen = rows_seen(p, y0 + t);
        for (dim_t j = 0; j < columns && x0 + j < p.to[2]; j += lane_results::most)
          lists[m++] = {
              lane(t * axes[1].step * pitch + j * axes[2].step),
              lane((t * axes[1].spread + p.first[1]) * row + j * axes[2].spread + p.first[2]),
              any ? static_cast<std::int32_t>(seen.first * of_row) : 0,
              any ? static_cast<std::int32_t>(seen.last * of_row) : 0,
              static_cast<std::int32_t>(
                  least(lane_results::most, least(columns - j, p.to[2] - x0 - j)))};
      }
      now.result_count = m - now.results;
    }
  }
  struct range {
    dim_t first, last;
  };
  /// The kernel rows that meet the source at row t.
  range rows_seen(const conv_pass& p, dim_t t) const {
    const dim_t top = t * p.stride[1] - p.padding[1], d = p.dilation[1];
    const auto quotient = [d](dim_t n) { return n <= 0 ? 0 : d == 1 ? n : (n + d - 1) / d; };
    const dim_t first = quotient(-top), last = quotient(p.from[1] - top);
    return {least(first, p.kernel[1]),
            std::max(least(last, p.kernel[1]), least(first, p.kernel[1]))};
  }
  void list_weights(dim_t y0, dim_t x0) {
    const auto lane = [&](dim_t i) { return static_cast<std::int32_t>(i * width); };
    part& now = parts[0];
    now = {forward_pass(g), 0, 0, 0};
    const dim_t used = least(columns, to[2] - x0), high = least(rows, to[1] - y0);
    for (dim_t t = 0; t < high; ++t) terms[t] = {lane(t * axes[1].step * pitch), lane(t * used)};
    dim_t m = 0;
    for (dim_t s = 0; s < slabs(); ++s)
      for (dim_t k = 0; k < g.kernel[1]; ++k) {
        // Position t reads row (y0 + t) stride + at.
        const dim_t at = y0 * g.stride[1] + k * g.dilation[1] - g.padding[1], step = g.stride[1];
        const dim_t first = least(high, at < 0 ? (-at + step - 1) / step : 0),
                    last = least(high, from[1] > at ? (from[1] - at + step - 1) / step : 0);
        for (dim_t j = 0; j < g.kernel[2]; j += lane_results::most)
          lists[m++] = {lane(s * slab() + k * g.dilation[1] * pitch + j * g.dilation[2]),
                        lane((s * g.kernel[1] + k) * g.kernel[2] + j),
                        static_cast<std::int32_t>(first),
                        static_cast<std::int32_t>(std::max(first, last)),
                        static_cast<std::int32_t>(least(lane_results::most, g.kernel[2] - j))};
      }
    now.result_count = m;
  }

  /// Copies what plane z of the result (at (y0, x0) of a part) meets of some groups.
  void copy(const T* source, const conv_pass& p, dim_t z, dim_t y0, dim_t x0, dim_t count) const {
    const dim_t plane = from[1] * from[2], group_step = sources * from[0] * plane;
    const dim_t top = y0 * axes[1].step + axes[1].low, left = x0 * axes[2].step + axes[2].low;
    T* at = x;
    for (dim_t s = 0; s < sources; ++s)
      for (dim_t kz = 0; kz < p.kernel[0]; ++kz, at += slab() * width) {
        const dim_t in = z * p.stride[0] - p.padding[0] + kz * p.dilation[0];
        if (in < 0 || in >= from[0])
          kernels.clear(at, slab() * width);
        else
          copy_window(at, source + (s * from[0] + in) * plane, group_step, top, left, count);
      }
  }
  void copy_window(T* at, const T* source, dim_t group_step, dim_t top, dim_t left,
                   dim_t count) const {
    const dim_t row = pitch * width, lead = left < 0 ? least(-left, pitch) : 0,
                skip = left > 0 ? left : 0, above = top < 0 ? least(-top, height) : 0,
                length = std::max(dim_t{0}, least(from[2] - skip, pitch - lead)),
                seen = std::max(dim_t{0}, least(from[1] - top, height) - above);
    if (above > 0) kernels.clear(at, above * row);
    at += above * row;
    source += (top + above) * from[2] + skip;
    if (length == 0)
      kernels.clear(at, seen * row);
    else
      kernels.pack_window(
          {at, source, width, seen, lead, length, pitch, from[2], group_step, count});
    at += seen * row;
    if (above + seen < height) kernels.clear(at, (height - above - seen) * row);
  }

  /// f(z, y0, x0) for every band.
  template <class F>
  void each_band(const F& f) {
    for (dim_t y0 = 0; y0 < axes[1].count; y0 += rows)
      for (dim_t x0 = 0; x0 < axes[2].count; x0 += columns) {
        list(y0, x0);
        f(y0, x0);
      }
  }
  dim_t blocks() const { return detail::parts(g.groups, width); }
  dim_t worth() const {
    return multiply_adds_for_thread / (conv_geometry::volume(g.out) * group_size * width + 1) + 1;
  }
};

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
