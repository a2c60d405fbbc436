#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv_depthwise_kernels.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/padded_tiles.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

// Convolutions of few channels a group from padded copies: any kernel, stride
// and dilation.
namespace ikebana::cpu::detail {

/// The kernel elements along one dimension that positions of one remainder
/// meet: from the nearest to the copy's beginning on.
struct met_elements {
  dim_t first, step, count;  // k = first + i step
  dim_t at, at_step;         // in the copy
};
inline met_elements elements_met(const conv_geometry& g, std::size_t d, const sliding_axis& a,
                                 bool backward, dim_t remainder) {
  const dim_t s = g.stride[d], e = g.dilation[d];
  if (!backward) return {0, 1, g.kernel[d], 0, e};
  met_elements m{0, 0, 0, 0, 0};
  dim_t next = -1;
  for (dim_t k = g.kernel[d] - 1; k >= 0; --k) {
    const dim_t at = remainder + g.padding[d] - k * e;
    if (floor_quotient(at, s) * s != at) continue;
    if (m.count == 0) {
      m.first = k;
      m.at = floor_quotient(at, s) + a.padding;
    } else if (next < 0) {
      next = k;
      m.step = k - m.first;
      m.at_step = floor_quotient(at, s) + a.padding - m.at;
    }
    ++m.count;
  }
  return m;
}

/// A convolution as it runs: the tables and copies in the thread's scratch.
template <class T>
struct depthwise_run {
  const depthwise_kernels<T>& kernels;
  padded_tiles<T>& p;
  std::array<dim_t, 3> remainders;
  depthwise_slide<T> job{};
  met_elements *met_rows = nullptr, *met_columns = nullptr;
  column_span* spans = nullptr;
  dim_t *columns = nullptr, *column_weights = nullptr, *slab_weights = nullptr,
        *slab_planes = nullptr;
  T *copies = nullptr, *parts = nullptr;
  void (*slide)(const depthwise_slide<T>&) = nullptr;
  dim_t unit_size = 0, together = 1, part_step = 0;

  /// The best of the shapes for this kernel, if there is any.
  void choose_block() {
    const conv_geometry& g = p.g;
    const bool plain = g.dilation[1] == 1 && (!p.backward || g.stride[1] == 1);
    dim_t least = 0;
    for (const auto& s : kernels.slides)
      if (plain && s.slide != nullptr && s.kernel == g.kernel[1] && s.stride == p.rows.step) {
        const dim_t cost = rounded_up(p.rows.count, s.rows);
        if (slide == nullptr || cost < least) {
          least = cost;
          p.block = s.rows;
          slide = s.slide;
        }
      }
    if (slide != nullptr && p.rows.count > 1) return;
    slide = kernels.slide_any;
    job.along = p.rows.count < 4;
    p.block = job.along ? 1 : static_cast<dim_t>(depthwise_slide<T>::any_rows);
  }

  /// Divides the scratch; false if it is too small.
  bool place(dim_t units) {
    const conv_geometry& g = p.g;
    std::byte *at = thread_scratch(), *const end = at + packed_a_bytes + packed_b_bytes;
    const auto take = [&](auto*& to, dim_t n) {
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(at);
      const dim_t bytes = rounded_up(n * static_cast<dim_t>(sizeof *to), 64);
      if (bytes > end - at) return false;
      at += bytes;
      return true;
    };
    const dim_t slabs = p.sources * g.kernel[0];
    if (!take(met_rows, remainders[1]) || !take(met_columns, remainders[2]) ||
        !take(spans, p.phases()) || !take(columns, remainders[2] * g.kernel[2]) ||
        !take(column_weights, remainders[2] * g.kernel[2]) || !take(slab_weights, slabs) ||
        !take(slab_planes, slabs))
      return false;
    part_step = rounded_up(p.tile_columns, p.copying.width);
    if (remainders[2] > 1 && !take(parts, remainders[2] * p.block * part_step)) return false;
    // Many small planes at a time: what was stored just before is slow to load.
    unit_size = slabs * p.slab;
    if (p.is_whole() && p.to[0] == 1)
      while (together < 16 && together < units &&
             2 * together * unit_size * static_cast<dim_t>(sizeof(T)) <= 16 * 1024)
        together *= 2;
    const dim_t size = together * unit_size + p.slack();
    if (!take(copies, size)) return false;
    p.clear(copies, size);
    return true;
  }

  void find_tables(bool backward, bool relu) {
    const conv_geometry& g = p.g;
    for (dim_t a = 0; a < remainders[1]; ++a) met_rows[a] = elements_met(g, 1, p.rows, backward, a);
    for (dim_t b = 0; b < remainders[2]; ++b) {
      const met_elements m = met_columns[b] = elements_met(g, 2, p.columns, backward, b);
      for (dim_t i = 0; i < m.count; ++i) {
        columns[b * g.kernel[2] + i] = backward ? p.lead + m.at + i * m.at_step : p.column_of(i);
        column_weights[b * g.kernel[2] + i] = m.first + i * m.step;
      }
    }
    job.slab_step = p.slab;
    job.block_step = p.rows.step * p.row;
    job.slab_weights = slab_weights;
    job.relu = relu;
  }

  /// The planes of the source that plane z meets.
  void find_slabs(dim_t z, dim_t weight_source) {
    const conv_geometry& g = p.g;
    job.slabs = 0;
    for (dim_t s = 0; s < p.sources; ++s)
      for (dim_t k = 0; k < g.kernel[0]; ++k) {
        dim_t at = p.backward ? z + g.padding[0] - k * g.dilation[0]
                              : z * g.stride[0] - g.padding[0] + k * g.dilation[0];
        if (at < 0 || (p.backward && g.stride[0] > 1 && at % g.stride[0] != 0)) continue;
        if (p.backward && g.stride[0] > 1) at /= g.stride[0];
        if (at >= p.from[0]) continue;
        slab_weights[job.slabs] = s * weight_source + k * p.plane_taps;
        slab_planes[job.slabs++] = s * p.from[0] + at;
      }
  }

  /// The tile at (y, x) of one plane of the result.
  void find_tile(const T* copy, const T* from, T* out, dim_t y, dim_t x) {
    const dim_t width = p.to[2], down = remainders[1], across = remainders[2];
    for (dim_t a = 0; a < down; ++a) {
      const met_elements& m = met_rows[a];
      job.kernel_rows = m.count;
      job.row_step = m.at_step * p.row;
      job.weight_step = m.step * p.g.kernel[2];
      job.weights = from + m.first * p.g.kernel[2];
      job.out_step = down * width;
      // Rows a, a + down, ... of the result.
      const dim_t all = down == 1 ? p.to[1] : (p.to[1] - a + down - 1) / down;
      const dim_t end = all - y < p.tile_rows ? all : y + p.tile_rows;
      for (dim_t t = y; t < end; t += p.block) {
        job.rows = end - t < p.block ? end - t : p.block;
        job.image = copy + ((t - y) * p.rows.step + m.at) * p.row;
        T* const out_row = out + (t * down + a) * width;
        if (across == 1) {
          job.length = width - x < p.tile_columns ? width - x : p.tile_columns;
          job.kernel_columns = met_columns->count;
          job.columns = columns;
          job.column_weights = column_weights;
          job.out = out_row + x;
          slide(job);
        } else {
          find_parts(out_row, x);
        }
      }
    }
  }
  /// A block of rows whose columns of each remainder are found apart.
  void find_parts(T* out_row, dim_t x) {
    const dim_t width = p.to[2], across = remainders[2], out_step = job.out_step;
    job.out_step = part_step;
    for (dim_t b = 0; b < across; ++b) {
      const dim_t all = (width - b + across - 1) / across;
      job.length = all - x < p.tile_columns ? all - x : p.tile_columns;
      job.kernel_columns = met_columns[b].count;
      job.columns = columns + b * p.g.kernel[2];
      job.column_weights = column_weights + b * p.g.kernel[2];
      job.out = parts + b * p.block * part_step;
      if (job.length > 0) slide(job);
    }
    job.out_step = out_step;
    const dim_t left = width - x * across, most = p.tile_columns * across;
    kernels.interleave(job.rows, across, parts, part_step, p.block * part_step,
                       out_row + x * across, out_step, left < most ? left : most);
  }
};

/// The convolution of `source`, backward: of the output's gradient with the
/// weights transposed. Applies no function but relu. False, having done
/// nothing, if it does not fit.
template <class T>
bool convolve_by_channel(const depthwise_kernels<T>& kernels, const conv_geometry& g, bool backward,
                         const T* source, const T* w, const T* bias, bool relu, T* result) {
  padded_tiles<T> p{kernels.copying, g, backward};
  depthwise_run<T> run{kernels, p, backward ? g.stride : std::array<dim_t, 3>{1, 1, 1}};
  run.choose_block();
  // Half of the scratch, for tables and results of several remainders take
  // some, too.
  const dim_t room = static_cast<dim_t>((packed_a_bytes + packed_b_bytes) / sizeof(T));
  const dim_t units = g.batch * g.groups, most_slabs = p.sources * g.kernel[0];
  if (!p.fit(most_slabs, run.remainders[2] > 1 ? room / 3 : room - room / 8) || !run.place(units))
    return false;
  run.find_tables(backward, relu);
  const dim_t source_plane = p.from[1] * p.from[2], plane = p.to[1] * p.to[2];
  const dim_t weight_group = p.sources * p.results * p.taps;
  const dim_t weight_result = backward ? p.taps : p.sources * p.taps;
  const bool whole = p.is_whole() && p.to[0] == 1;
  dim_t group = 0, span_of = -1;
  if (p.to[0] == 1) run.find_slabs(0, backward ? p.results * p.taps : p.taps);
  for (dim_t first = 0; first < units; first += run.together) {
    const dim_t now = units - first < run.together ? units - first : run.together;
    const T* const from = source + first * p.sources * p.from[0] * source_plane;
    T* const to = result + first * p.results * p.to[0] * plane;
    const dim_t first_group = group;
    for (dim_t z = 0; z < p.to[0]; ++z) {
      if (p.to[0] > 1) run.find_slabs(z, backward ? p.results * p.taps : p.taps);
      for (dim_t y = 0; y < p.rows.count; y += p.tile_rows)
        for (dim_t x = 0; x < p.columns.count; x += p.tile_columns) {
          if (x != span_of) p.find_spans(span_of = x, run.spans);
          for (dim_t u = 0; u < now; ++u)
            for (dim_t s = 0; s < run.job.slabs; ++s)
              p.copy(run.copies + u * run.unit_size + s * p.slab,
                     from + (u * p.sources * p.from[0] + run.slab_planes[s]) * source_plane, y,
                     run.spans, whole);
          group = first_group;
          for (dim_t u = 0; u < now; ++u) {
            for (dim_t r = 0; r < p.results; ++r) {
              run.job.start = bias != nullptr ? bias[group * p.results + r] : T(0);
              run.find_tile(run.copies + u * run.unit_size,
                            w + group * weight_group + r * weight_result,
                            to + ((u * p.results + r) * p.to[0] + z) * plane, y, x);
            }
            if (++group == g.groups) group = 0;
          }
        }
    }
  }
  return true;
}

}  // namespace ikebana::cpu::detail
