#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/pool/plan.hpp"
#include "ikebana/cpu/pool/windows.hpp"

// Averages and maxima of windows, and gradients of averages, row by row: the rows of the source
// that a row of the result meets are joined, and then the columns of what came out. Such rows stand
// one behind another in one line, with room for zeros (or what is less than all) between them, so
// that no lane waits for the next row.
namespace ikebana::cpu::detail {

/// Some rows of the result.
template <class T>
struct window_rows {
  /// What is joined for a row of the line: `count` rows in each of `slabs`.
  struct row {
    const T* from;
    dim_t slabs, count;
  };
  const row* rows;
  dim_t row_count;
  /// Where a row of the result begins in the sums, and its own factor.
  struct place {
    dim_t from;
    T factor;
  };
  const place* results;
  dim_t result_count;
  // The source, and where its columns come in a row of the line.
  dim_t slab_step, row_step, length, lead, line_pitch;
  T* line;
  // Columns sorted by remainder, where windows overlap, and where the kernel's look. If kernels
  // hold several strides, what `stride` neighbours come to stands for them, and only as many
  // remainders as are left are kept, before it.
  T* phases;
  dim_t phase_size;
  const dim_t* taps;
  dim_t tap_count, kernel, stride, shift, kept;
  bool is_grouped, shares_nothing;
  T factor;
  // Columns' sums, which may be the result.
  T* sums;
  dim_t sums_pitch;
  bool is_direct;
  dim_t sums_count() const {
    return is_direct && row_count == 1 ? result_length : row_count * sums_pitch;
  }
  const T* column_factors;  // may be null
  T *result, *result_end;
  dim_t result_step, result_length;
  // Whether rows may be written over by the one before.
  bool is_whole;
};

/// Says whether all was finite: else maxima may be wrong.
template <class T>
struct window_rows_kernel {
  dim_t width;
  bool (*run)(const window_rows<T>&);
};

}  // namespace ikebana::cpu::detail

#define IKEBANA_CPU_BODY "ikebana/cpu/pool/rows-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

/// The maxima of `count` windows from the c-th on of row `row` of all planes'.
template <class T>
void maxima_of_row(const pool_geometry& g, dim_t row, dim_t c, dim_t count, const T* x, T* y) {
  const dim_t rows = g.out[0] * g.out[1], of_plane = row % rows;
  pool_geometry one = g;
  one.planes = 1;
  one.out = {1, 1, count};
  one.padding[0] -= of_plane / g.out[1] * g.stride[0];
  one.padding[1] -= of_plane % g.out[1] * g.stride[1];
  one.padding[2] -= c * g.stride[2];
  maxima_by_windows<T>(one, x + row / rows * g.input_plane(), y + row * g.out[2] + c, nullptr);
}

/// Averages row by row, or what they give back to their elements, or maxima. `factor` is 0 if it
/// differs from window to window: only of averages. Only maxima know dilation. False, having done
/// nothing, where the scratch is too small. `rows_kernel` is for the work.
template <class T>
bool windows_by_rows(const pool_geometry& g, pool_work work, window_rows_kernel<T> rows_kernel,
                     T factor, bool count_include_pad, const T* source, T* result) {
  constexpr dim_t near = pool_costs::line_bytes / static_cast<dim_t>(sizeof(T));
  const bool backward = work == pool_work::average_backward,
             is_maximum = work == pool_work::maximum;
  const dim_t kernel = g.kernel[2], stride = g.stride[2], padding = g.padding[2];
  const auto dilation = [&](std::size_t d) { return is_maximum ? g.dilation[d] : dim_t{1}; };
  const std::array<dim_t, 3>&from = backward ? g.out : g.in, &to = backward ? g.in : g.out;
  if (g.planes <= 0 || to[0] <= 0 || to[1] <= 0 || to[2] <= 0) return true;
  const dim_t w = rows_kernel.width;

  // Columns are divided into tiles of `wide` windows; a row of the line holds a few more.
  window_rows<T> t{};
  t.kernel = kernel;
  t.stride = stride;
  t.shift = (kernel - 1) * dilation(2) / stride;
  const bool is_dense = dilation(2) == 1;
  t.shares_nothing = is_dense && kernel <= stride;
  t.is_grouped = is_dense && stride > 1 && kernel >= (stride > 4 ? stride : 2 * stride);
  t.kept = t.is_grouped ? kernel % stride : is_dense ? least(kernel, stride) : stride;
  t.factor = factor;
  const dim_t steps[] = {from[1] * from[2], from[2]};
  t.slab_step = steps[0] * dilation(0);
  t.row_step = steps[1] * dilation(1);
  t.result_step = to[2];
  const dim_t all = backward ? (to[2] - 1 + padding) / stride + 1 : to[2];
  dim_t wide = all;
  if (stride * (wide + t.shift) > 2 * near) wide = rounded_up(2 * near / stride - t.shift, w);
  t.is_whole = wide == all;
  const dim_t pitch = wide + t.shift, most = near / (stride * pitch), total = to[0] * to[1];
  // Long rows go alone, straight to the result.
  const bool is_alone = most < 4 && !backward && factor != T(0);
  const dim_t high = is_alone ? 1 : least(most > 1 ? most : 1, g.planes * total),
              room = rounded_up(stride * (high * pitch + t.shift + 8 * w), w);
  t.line_pitch = backward ? pitch : stride * pitch;
  t.sums_pitch = backward ? stride * pitch : pitch;
  t.phase_size = room / stride;

  struct span {
    dim_t from, count;
    T factor;
  };
  monotonic_scratch scratch = monotonic_scratch::of<T>();
  auto lists = monotonic_scratch::of_lists();
  auto* const rows = lists.allocate<typename window_rows<T>::row>(high);
  auto* const results = lists.allocate<typename window_rows<T>::place>(4 * high);
  T *const column_factors = scratch.allocate<T>(rounded_up(wide, w)), *const sums =
                                                                          scratch.allocate<T>(room);
  span* const spans[] = {lists.allocate<span>(to[0]), lists.allocate<span>(to[1])};
  auto* const taps = lists.allocate<dim_t>(kernel);
  scratch.allocate(t.line, room);
  scratch.allocate(t.phases, room);
  if (!scratch.fits() || !lists.fits()) return false;
  t.rows = rows;
  t.results = results;
  t.taps = taps;
  const dim_t whole = t.is_grouped ? kernel / stride : 0, left_over = kernel - whole * stride;
  for (dim_t k = 0; k < whole; ++k) taps[k] = left_over * t.phase_size + k;
  for (dim_t k = 0; k < left_over; ++k) {
    const dim_t at = whole * stride + k * dilation(2);
    taps[whole + k] = at % stride * t.phase_size + at / stride;
  }
  t.tap_count = whole + left_over;
  if (stride == 1) t.phases = t.line;

  for (std::size_t d = 0; d < 2; ++d) {
    const dim_t step = steps[d];
    for (dim_t i = 0; i < to[d]; ++i)
      if (backward) {
        const dim_t place = i + g.padding[d], late = place - g.kernel[d] + 1,
                    last = place / g.stride[d],
                    first = late > 0 ? (late + g.stride[d] - 1) / g.stride[d] : 0;
        const dim_t end = last < from[d] ? last + 1 : from[d];
        spans[d][i] = {first * step, end > first ? end - first : 0, T(1)};
      } else {
        const pool_span s = span_of(g, d, i, dilation(d));
        spans[d][i] = {s.begin * step, parts(s.end - s.begin, dilation(d)),
                       T(1) / static_cast<T>(count_include_pad ? s.padded : s.end - s.begin)};
      }
  }

  const dim_t plane = from[0] * steps[0];
  for (dim_t c = 0; c < all; c += wide) {
    const dim_t now = least(wide, all - c), start = backward ? c - t.shift : c * stride - padding;
    t.lead = start < 0 ? -start : 0;
    const dim_t first = start + t.lead;
    t.length = least(from[2] - first, t.line_pitch - t.lead);
    if (t.length < 0) t.length = 0;
    dim_t column = c, skip = 0;
    t.result_length = now;
    if (backward) {
      column = c * stride > padding ? c * stride - padding : 0;
      skip = column + padding - c * stride;
      t.result_length = least(to[2] - column, stride * now - skip);
    }
    t.is_direct =
        is_alone || (!backward && t.sums_pitch == to[2] && now == to[2] && factor != T(0));
    if (factor == T(0)) {
      t.factor = T(1);
      t.column_factors = column_factors;
      for (dim_t i = now; i < rounded_up(now, w); ++i) column_factors[i] = T(0);
      for (dim_t i = 0; i < now; ++i) {
        const pool_span s = span_of(g, 2, c + i, 1);
        column_factors[i] = T(1) / static_cast<T>(count_include_pad ? s.padded : s.end - s.begin);
      }
    }
    // What is no source's stays.
    if (!is_maximum)
      std::memset(static_cast<void*>(t.line), 0, static_cast<std::size_t>(room) * sizeof(T));
    else
      std::fill_n(t.line, room, std::numeric_limits<T>::lowest());
    const T* x = source + first;
    dim_t z = 0, r = 0;
    for (dim_t done = 0; done < g.planes * total; done += t.result_count) {
      const dim_t left = g.planes * total - done, at_most = least(4 * high, left);
      t.row_count = t.result_count = 0;
      const span* before = nullptr;
      while (t.result_count < at_most) {
        const span &slabs = spans[0][z], &of = spans[1][r];
        // Rows of the result that meet the same rows share what comes out.
        const bool again =
            before != nullptr && of.from == before->from && of.count == before->count;
        if (!again) {
          if (t.row_count == high) break;
          rows[t.row_count++] = {x + slabs.from + of.from, slabs.count, of.count};
        }
        results[t.result_count++] = {(t.row_count - 1) * t.sums_pitch + skip,
                                     slabs.factor * of.factor};
        before = backward ? &of : nullptr;
        if (++r < to[1]) continue;
        r = 0;
        before = nullptr;
        if (++z < to[0]) continue;
        z = 0;
        x += plane;
      }
      t.result = result + done * to[2] + column;
      t.result_end = result + g.planes * total * to[2];
      t.sums = t.is_direct ? t.result : sums;
      if (!rows_kernel.run(t) && is_maximum)
        for (dim_t i = done; i < done + t.result_count; ++i)
          maxima_of_row(g, i, c, now, source, result);
    }
  }
  return true;
}

}  // namespace ikebana::cpu::detail
