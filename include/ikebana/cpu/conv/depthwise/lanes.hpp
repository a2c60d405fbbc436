#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/depthwise/bands.hpp"
#include "ikebana/cpu/conv/depthwise/kernels.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/parallel.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// Convolutions of few channels a group with groups as lanes, of any kernel, stride and dilation: a
/// register of groups at a time, what a band of positions meets is copied so that groups lie side
/// by side, with zeros around; then every result is a sum over rows of the kernel, or, for the
/// weights' gradient, of positions.
template <class T>
struct depthwise_by_lanes : depthwise_bands<T> {
  using bands = depthwise_bands<T>;
  using bands::axes, bands::blocks, bands::columns, bands::copy, bands::direction, bands::from,
      bands::g, bands::group_size, bands::kernels, bands::lists, bands::parts, bands::results,
      bands::rows, bands::sources, bands::sums, bands::taps, bands::terms, bands::to, bands::w,
      bands::width, bands::worth, bands::x, bands::y;
  using bands::depthwise_bands;
  using typename bands::extents, typename bands::part;

  /// The convolution of `source`, or backward: of dy.
  void run(const T* source, const T* weights, const T* bias, const conv_epilogue<T>& then,
           T* result) const {
    parallel_for(0, blocks() * g.batch, worth(), [&](dim_t begin, dim_t end) {
      depthwise_by_lanes mine = *this;
      mine.place();
      // As many at a time as the second-level cache holds while there are bands.
      const dim_t together = 1 + conv_costs::lanes_bytes / mine.unit_bytes();
      for (dim_t last; begin < end; begin = last) {
        last = least(begin + together, end);
        mine.each_band([&](dim_t y0, dim_t x0) {
          for (dim_t unit = begin; unit < last; ++unit) {
            const dim_t group = unit / g.batch * width, image = unit % g.batch,
                        count = least(width, g.groups - group);
            if (unit == begin || image == 0)
              kernels.pack_across(mine.w, width, weights + group * group_size, group_size,
                                  group_size, count);
            const dim_t at = image * g.groups + group;
            mine.run_band(source + at * sources * conv_geometry::volume(from), bias, then, result,
                          at, group, count, y0, x0);
          }
        });
      }
    });
  }

  dim_t unit_bytes() const {
    return (sources * conv_geometry::volume(from) + results * conv_geometry::volume(to)) * width *
           dim_t{sizeof(T)};
  }
  void run_band(const T* source, const T* bias, const conv_epilogue<T>& then, T* result, dim_t at,
                dim_t group, dim_t count, dim_t y0, dim_t x0) const {
    const extents& s = axes_spread();
    const dim_t volume = conv_geometry::volume(to);
    const dim_t row = columns * s[2], top = y0 * s[1], left = x0 * s[2],
                high = least(rows * s[1], to[1] - top), wide = least(row, to[2] - left);
    lanes_job<T> job{};
    job.a = x;
    job.to = y;
    job.terms = terms;
    job.a_step = axes[2].step * width;
    job.to_step = s[2] * width;
    job.start = sums;
    job.relu = then.function == activation::relu && !is_finished_later(then);
    kernels.clear(sums, width);
    for (dim_t z = 0; z < to[0]; ++z) {
      const dim_t first = z % s[0] * s[1] * s[2];
      // All parts of a slice meet the same slabs, but for those that meet nothing.
      const part* meets = parts + first;
      for (const part* const last = meets + s[1] * s[2] - 1; meets < last && meets->p.taps() == 0;)
        ++meets;
      copy(source, meets->p, z / s[0], y0, x0, count);
      for (dim_t r = 0; r < results; ++r) {
        // Where there is a scale, the bias comes after it.
        if (bias != nullptr && then.scale == nullptr) gather(bias, group, count, r, sums);
        for (const part* i = parts + first; i < parts + first + s[1] * s[2]; ++i) {
          job.b = w + r * i->p.weight_result * width;
          job.terms = terms + i->terms;
          job.inner = i->p.kernel[2];
          job.a_inner = i->p.dilation[2] * width;
          job.b_inner = i->p.weight_tap[2] * width;
          job.results = lists + i->results;
          job.count = i->result_count;
          kernels.sum_lanes(job);
        }
        put(bias, then, result, at, group, count, r, z, top, left, high, wide, row, volume);
      }
    }
  }
  const extents& axes_spread() const {
    static constexpr extents one{1, 1, 1};
    return direction == conv_direction::data ? g.stride : one;
  }

  static bool is_finished_later(const conv_epilogue<T>& then) {
    return then.scale != nullptr || then.residual != nullptr ||
           (then.function != activation::none && then.function != activation::relu);
  }
  /// What result r of some groups has of `values`.
  const T* gather(const T* values, dim_t group, dim_t count, dim_t r, T* to_lanes) const {
    for (dim_t i = 0; i < count; ++i) to_lanes[i] = values[(group + i) * results + r];
    return to_lanes;
  }
  /// Puts a band of result r of some groups in its place.
  void put(const T* bias, const conv_epilogue<T>& then, T* result, dim_t at, dim_t group,
           dim_t count, dim_t r, dim_t z, dim_t top, dim_t left, dim_t high, dim_t wide, dim_t row,
           dim_t volume) const {
    const bool later = is_finished_later(then);
    conv_rest<T> rest{nullptr, nullptr, then.function};
    if (then.scale != nullptr) {
      rest.scale = gather(then.scale, group, count, r, sums + width);
      if (bias != nullptr) rest.shift = gather(bias, group, count, r, sums + 2 * width);
    }
    const bool whole = wide == row && wide == to[2];
    for (dim_t i = 0; i < (whole ? 1 : high); ++i) {
      const dim_t offset = (at * results + r) * volume + (z * to[1] + top + i) * to[2] + left;
      const dim_t length = whole ? high * wide : wide, step = results * volume;
      kernels.turn(result + offset, step, y + i * row * width, width, count, length);
      if (later)
        kernels.finish_rows(count, length, result + offset, step, rest,
                            then.residual == nullptr ? nullptr : then.residual + offset);
    }
  }

  void run_weights(const T* source, const T* dy, T* dw, bool accumulate) const {
    parallel_for(0, blocks(), worth() / (g.batch + 1) + 1, [&](dim_t begin, dim_t end) {
      depthwise_by_lanes mine = *this;
      mine.place();
      const bool banded = rows < to[1] || columns < to[2];
      // One band after the other where tables are the same for all groups.
      for (dim_t block = begin; block < end; ++block) {
        const dim_t group = block * width, count = least(width, g.groups - group);
        if (accumulate)
          kernels.pack_across(mine.w, width, dw + group * group_size, group_size, group_size,
                              count);
        else
          kernels.clear(mine.w, group_size * width);
        const auto add = [&](dim_t y0, dim_t x0) {
          for (dim_t image = 0; image < g.batch; ++image)
            mine.add_band(source, dy, image * g.groups + group, count, y0, x0);
        };
        if (banded || block == begin)
          mine.each_band(add);
        else
          add(0, 0);
        kernels.turn(dw + group * group_size, group_size, mine.w, width, count, group_size);
      }
    });
  }
  void add_band(const T* source, const T* dy, dim_t at, dim_t count, dim_t y0, dim_t x0) const {
    const dim_t high = least(rows, to[1] - y0), wide = least(columns, to[2] - x0),
                volume = conv_geometry::volume(to);
    lanes_job<T> job{};
    job.a = x;
    job.b = y;
    job.terms = terms;
    job.results = lists;
    job.count = parts[0].result_count;
    job.inner = wide;
    job.a_inner = axes[2].step * width;
    job.b_inner = width;
    job.a_step = g.dilation[2] * width;
    job.to_step = width;
    for (dim_t z = 0; z < to[0]; ++z) {
      copy(source + at * sources * conv_geometry::volume(from), parts[0].p, z, y0, x0, count);
      for (dim_t r = 0; r < results; ++r) {
        const T* given = dy + (at * results + r) * volume + (z * to[1] + y0) * to[2] + x0;
        const bool whole = wide == to[2];
        for (dim_t i = 0; i < (whole ? 1 : high); ++i, given += to[2])
          kernels.pack_across(y + i * wide * width, width, given, results * volume,
                              whole ? high * wide : wide, count);
        job.to = w + r * sources * taps * width;
        kernels.sum_lanes(job);
      }
    }
  }
};

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
