#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/depthwise/kernels.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/parallel.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// Convolutions of few channels a group with groups as lanes, of any kernel, stride and dilation: a
/// register of groups at a time, what a band of positions meets is copied so that groups lie side
/// by side, with zeros around; then every result is a sum over rows of the kernel, or, for the
/// weights' gradient, of positions. Backward by data has a pass for each residue of the positions
/// by the strides.
template <class T>
struct depthwise_by_lanes {
  static constexpr dim_t most_passes = 64;
  using extents = std::array<dim_t, 3>;

  const depthwise_kernels<T>& kernels;
  const conv_geometry& g;
  conv_direction direction;
  dim_t width, sources, results, taps, group_size;  // of a group
  extents from, to;                                 // the source's, the result's
  // In each dimension, `count` positions of a pass: number t reads t step + low ... t step + high
  // of the source, and is position t spread + residue of the result.
  extents step{1, 1, 1}, spread{1, 1, 1}, count, low, high;
  dim_t rows, columns, height = 0, pitch = 0;  // of a band
  // Parts of a thread's scratch and lists.
  conv_pass* passes = nullptr;
  T *x = nullptr, *y = nullptr, *w = nullptr, *sums = nullptr;

  depthwise_by_lanes(const depthwise_kernels<T>& k, const conv_geometry& of, conv_direction d)
      : kernels{k}, g{of}, direction{d}, width{k.width} {
    const bool back = d == conv_direction::data;
    sources = (back ? g.out_channels : g.in_channels) / g.groups;
    results = (back ? g.in_channels : g.out_channels) / g.groups;
    taps = conv_geometry::volume(g.kernel);
    group_size = sources * results * taps;
    from = back ? g.out : g.in;
    to = back ? g.in : g.out;
    (back ? spread : step) = g.stride;
  }

  dim_t pass_count() const { return conv_geometry::volume(spread); }
  conv_pass pass(dim_t i) const {
    if (direction != conv_direction::data) return forward_pass(g);
    return backward_pass(g,
                         {i / (spread[1] * spread[2]), i / spread[2] % spread[1], i % spread[2]});
  }

  /// Divides the work and the calling thread's scratch. False where it is too small.
  bool fit() {
    if (pass_count() > most_passes) return false;
    bool first = true;
    for (dim_t i = 0; i < pass_count(); ++i) {
      const conv_pass p = pass(i);
      if (p.taps() == 0) continue;
      for (std::size_t d = 0; d < 3; ++d) {
        const dim_t begin = -p.padding[d], end = begin + (p.kernel[d] - 1) * p.dilation[d];
        low[d] = first ? begin : least(low[d], begin);
        high[d] = first ? end : std::max(high[d], end);
      }
      first = false;
    }
    for (std::size_t d = 0; d < 3; ++d) count[d] = parts(to[d], spread[d]);
    rows = count[1];
    columns = count[2];
    // Near the first-level cache; but bands overlap.
    const dim_t room =
        (width * dim_t{sizeof(T)} == conv_costs::line_bytes ? conv_costs::wide_band_bytes
                                                            : conv_costs::narrow_band_bytes) /
        dim_t{sizeof(T)};
    while (lay_out() > room && rows * columns > 1)
      if (rows > 1)
        rows = parts(count[1], parts(count[1], rows - 1));
      else
        columns = (columns + 1) / 2;
    return place();
  }
  /// Elements of a band.
  dim_t lay_out() {
    height = (rows - 1) * step[1] + high[1] - low[1] + 1;
    pitch = (columns - 1) * step[2] + high[2] - low[2] + 1;
    return (slabs() * height * pitch + result_size()) * width;
  }
  dim_t slabs() const { return sources * g.kernel[0]; }
  dim_t result_size() const { return rows * spread[1] * columns * spread[2]; }

  bool place() {
    monotonic_scratch scratch = monotonic_scratch::of<T>(), places = monotonic_scratch::of_lists();
    const dim_t beyond = lanes_job<T>::together * width * std::max(g.stride[2], g.dilation[2]),
                size = slabs() * height * pitch * width;
    places.allocate(passes, pass_count());
    scratch.allocate(x, size + beyond + 2 * width);
    scratch.allocate(y, (result_size() + 1) * width);
    scratch.allocate(w, (group_size + 1) * width);
    scratch.allocate(sums, 4 * width);
    if (!scratch.fits() || !places.fits()) return false;
    for (dim_t i = 0; i < pass_count(); ++i) passes[i] = pass(i);
    // Results that are not wanted meet what is behind, of which subnormal numbers take long.
    kernels.clear(x + size, beyond);
    return true;
  }

  /// Copies what plane z of the result (at (y0, x0) of a pass) meets of some groups.
  void copy(const T* source, const conv_pass& p, dim_t z, dim_t y0, dim_t x0, dim_t groups) const {
    const dim_t top = y0 * step[1] + low[1], left = x0 * step[2] + low[2], row = pitch * width,
                group_step = sources * conv_geometry::volume(from);
    const position_range down = positions_inside(height, top, 1, from[1]),
                         across = positions_inside(pitch, left, 1, from[2]);
    const bool any = down.begin < down.end && across.begin < across.end;
    T* at = x;
    for (dim_t s = 0; s < sources; ++s)
      for (dim_t kz = 0; kz < p.kernel[0]; ++kz, at += height * row) {
        const dim_t in = p.met(0, z, kz);
        if (!any || in < 0 || in >= from[0]) {
          kernels.clear(at, height * row);
          continue;
        }
        kernels.clear(at, down.begin * row);
        kernels.pack_window({at + down.begin * row,
                             source + ((s * from[0] + in) * from[1] + top + down.begin) * from[2] +
                                 left + across.begin,
                             width, down.end - down.begin, across.begin, across.end - across.begin,
                             pitch, from[2], group_step, groups});
        kernels.clear(at + down.end * row, (height - down.end) * row);
      }
  }

  /// f(y0, x0) for every band.
  template <class F>
  void each_band(const F& f) const {
    for (dim_t y0 = 0; y0 < count[1]; y0 += rows)
      for (dim_t x0 = 0; x0 < count[2]; x0 += columns) f(y0, x0);
  }
  dim_t blocks() const { return parts(g.groups, width); }
  dim_t worth() const {
    return multiply_adds_for_thread / (conv_geometry::volume(g.out) * group_size * width + 1) + 1;
  }

  /// Forward, or backward by data.
  void run(const conv_operands<T>& of, const T* bias) const {
    parallel_for(0, blocks() * g.batch, worth(), [&](dim_t begin, dim_t end) {
      depthwise_by_lanes mine = *this;
      mine.place();
      for (dim_t unit = begin; unit < end; ++unit) {
        const dim_t group = unit / g.batch * width, image = unit % g.batch,
                    groups = least(width, g.groups - group);
        if (unit == begin || image == 0)
          kernels.pack_across(mine.w, width, of.weights + group * group_size, group_size,
                              group_size, groups);
        each_band([&](dim_t y0, dim_t x0) {
          mine.run_band(of, bias, image * g.groups + group, group, groups, y0, x0);
        });
      }
    });
  }
  void run_band(const conv_operands<T>& of, const T* bias, dim_t at, dim_t group, dim_t groups,
                dim_t y0, dim_t x0) const {
    const T* const source = of.source + at * sources * conv_geometry::volume(from);
    const dim_t in_slice = spread[1] * spread[2], row = columns * spread[2];
    lanes_job<T> job{};
    job.start = sums;
    job.relu = of.relu();
    job.sources = sources;
    job.extent = from[1];
    job.a_row = step[1] * pitch * width;
    job.a_column = step[2] * width;
    job.a_plane = height * pitch * width;
    job.to_row = spread[1] * row * width;
    job.to_column = spread[2] * width;
    kernels.clear(sums, width);
    for (dim_t z = 0; z < to[0]; ++z) {
      const conv_pass *const first = passes + z % spread[0] * in_slice, *meets = first;
      // All passes of a slice meet the same slabs, but for those that meet nothing.
      while (meets + 1 < first + in_slice && meets->taps() == 0) ++meets;
      copy(source, *meets, z / spread[0], y0, x0, groups);
      for (dim_t r = 0; r < results; ++r) {
        // Where there is a scale, the bias comes after it.
        if (bias != nullptr && of.then.scale == nullptr) gather(bias, group, groups, r, sums);
        for (const conv_pass* p = first; p < first + in_slice; ++p) {
          job.rows = least(rows, p->to[1] - y0);
          job.columns = least(columns, p->to[2] - x0);
          job.steps = p->kernel[1];
          job.planes = p->kernel[0];
          job.inner = p->kernel[2];
          job.top = p->met(1, y0, 0);
          job.down = p->stride[1];
          job.along = p->dilation[1];
          job.a = x + ((-p->padding[1] - low[1]) * pitch - p->padding[2] - low[2]) * width;
          job.a_step = p->dilation[1] * pitch * width;
          job.a_inner = p->dilation[2] * width;
          job.b = w + (r * p->weight_result + p->weight_first) * width;
          job.b_step = p->weight_tap[1] * width;
          job.b_source = p->weight_source * width;
          job.b_plane = p->weight_tap[0] * width;
          job.b_inner = p->weight_tap[2] * width;
          job.to = y + (p->first[1] * row + p->first[2]) * width;
          kernels.sum_lanes(job);
        }
        put(of, bias, at, group, groups, r, z, y0 * spread[1], x0 * spread[2]);
      }
    }
  }

  /// What result r of some groups has of `values`.
  const T* gather(const T* values, dim_t group, dim_t groups, dim_t r, T* to_lanes) const {
    for (dim_t i = 0; i < groups; ++i) to_lanes[i] = values[(group + i) * results + r];
    return to_lanes;
  }
  /// Puts a band of result r of some groups in its place, from (z, top, left) on.
  void put(const conv_operands<T>& of, const T* bias, dim_t at, dim_t group, dim_t groups, dim_t r,
           dim_t z, dim_t top, dim_t left) const {
    const conv_epilogue<T>& then = of.then;
    conv_rest<T> rest{nullptr, nullptr, then.function};
    if (then.scale != nullptr) {
      rest.scale = gather(then.scale, group, groups, r, sums + width);
      if (bias != nullptr) rest.shift = gather(bias, group, groups, r, sums + 2 * width);
    }
    const dim_t row = columns * spread[2], down = least(rows * spread[1], to[1] - top),
                across = least(row, to[2] - left), volume = conv_geometry::volume(to);
    const bool whole = across == row && across == to[2];
    for (dim_t i = 0; i < (whole ? 1 : down); ++i) {
      const dim_t offset = (at * results + r) * volume + (z * to[1] + top + i) * to[2] + left;
      const dim_t length = whole ? down * across : across, between = results * volume;
      kernels.turn(of.result + offset, between, y + i * row * width, width, groups, length);
      if (of.finishes())
        kernels.finish_rows(groups, length, of.result + offset, between, rest,
                            then.residual == nullptr ? nullptr : then.residual + offset);
    }
  }

  void run_weights(const conv_operands<T>& of) const {
    parallel_for(0, blocks(), worth() / (g.batch + 1) + 1, [&](dim_t begin, dim_t end) {
      depthwise_by_lanes mine = *this;
      mine.place();
      for (dim_t group = begin * width; group < least(end * width, g.groups); group += width) {
        const dim_t groups = least(width, g.groups - group);
        T* const dw = of.result + group * group_size;
        if (of.accumulates)
          kernels.pack_across(mine.w, width, dw, group_size, group_size, groups);
        else
          kernels.clear(mine.w, group_size * width);
        each_band([&](dim_t y0, dim_t x0) {
          for (dim_t image = 0; image < g.batch; ++image)
            mine.add_band(of, image * g.groups + group, groups, y0, x0);
        });
        kernels.turn(dw, group_size, mine.w, width, groups, group_size);
      }
    });
  }
  void add_band(const conv_operands<T>& of, dim_t at, dim_t groups, dim_t y0, dim_t x0) const {
    const dim_t down = least(rows, to[1] - y0), across = least(columns, to[2] - x0),
                volume = conv_geometry::volume(to), plane = g.kernel[1] * g.kernel[2];
    const bool whole = across == to[2];
    lanes_job<T> job{};
    job.rows = g.kernel[1];
    job.columns = g.kernel[2];
    job.steps = down;
    job.sources = job.planes = 1;
    job.inner = across;
    job.top = passes->met(1, y0, 0);
    job.down = g.dilation[1];
    job.along = step[1];
    job.extent = from[1];
    job.b = y;
    job.a_row = g.dilation[1] * pitch * width;
    job.a_column = g.dilation[2] * width;
    job.a_step = step[1] * pitch * width;
    job.a_inner = step[2] * width;
    job.b_step = across * width;
    job.b_inner = job.to_column = width;
    job.to_row = g.kernel[2] * width;
    for (dim_t z = 0; z < to[0]; ++z) {
      copy(of.source + at * sources * conv_geometry::volume(from), *passes, z, y0, x0, groups);
      for (dim_t r = 0; r < results; ++r) {
        const T* dy = of.weights + (at * results + r) * volume + (z * to[1] + y0) * to[2] + x0;
        for (dim_t i = 0; i < (whole ? 1 : down); ++i, dy += to[2])
          kernels.pack_across(y + i * across * width, width, dy, results * volume,
                              whole ? down * across : across, groups);
        for (dim_t s = 0; s < slabs(); ++s) {
          job.a = x + s * height * pitch * width;
          job.to = w + (r * sources * taps + s * plane) * width;
          kernels.sum_lanes(job);
        }
      }
    }
  }
};

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
