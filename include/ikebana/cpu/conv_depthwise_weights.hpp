#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv_depthwise_kernels.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/padded_tiles.hpp"
#include "ikebana/cpu/detail/scratch.hpp"

namespace ikebana::cpu::detail {

/// The gradient of the weights. False, having done nothing, if it does not fit.
template <class T>
bool convolve_weights_by_channel(const depthwise_kernels<T>& kernels, const conv_geometry& g,
                                 const T* x, const T* dy, T* dw, bool accumulate) {
  padded_tiles<T> p{kernels.copying, g, false};
  const dim_t room = static_cast<dim_t>((packed_a_bytes + packed_b_bytes) / sizeof(T));
  const dim_t width = kernels.copying.width, taps = p.plane_taps;
  constexpr dim_t index = static_cast<dim_t>(sizeof(dim_t) / sizeof(T));
  const dim_t tables = rounded_up(g.kernel[2], 64) * index + rounded_up(4 * p.phases() * index, 64);
  const dim_t weights = p.sources * p.results * p.taps;
  const dim_t sums_size = rounded_up(weights, width) * width;
  void (*dot)(const depthwise_dots<T>&) = nullptr;
  for (const auto& s : kernels.dots)
    if (s.dot != nullptr && s.kernel == g.kernel[1] && g.dilation[1] == 1 &&
        s.stride == g.stride[1]) {
      dot = s.dot;
      p.block = s.rows;
    }
  const dim_t rest = room - tables - sums_size - p.slack();
  if (rest <= 0 || !p.fit(1, rest)) return false;
  if (tables + sums_size + p.slab + p.slack() > room) return false;

  dim_t* const columns = reinterpret_cast<dim_t*>(thread_scratch());
  column_span* const spans = reinterpret_cast<column_span*>(columns + rounded_up(g.kernel[2], 64));
  T* const sums = reinterpret_cast<T*>(thread_scratch()) + tables;
  T* const copy = sums + sums_size;
  const bool whole = p.is_whole();
  p.clear(copy, p.slab + p.slack());
  for (dim_t k = 0; k < g.kernel[2]; ++k) columns[k] = p.column_of(k);
  const dim_t in_plane = g.in[1] * g.in[2], plane = g.out[1] * g.out[2];
  dim_t span_of = -1;
  depthwise_dots<T> job{};
  job.dy_step = g.out[2];
  job.block_step = p.rows.step * p.row;
  job.row_step = g.dilation[1] * p.row;
  job.kernel_rows = g.kernel[1];
  job.kernel_columns = g.kernel[2];
  job.columns = columns;
  for (dim_t group = 0; group < g.groups; ++group) {
    p.clear(sums, sums_size);
    for (dim_t image = 0; image < g.batch; ++image)
      for (dim_t s = 0; s < p.sources; ++s)
        for (dim_t z = 0; z < g.out[0]; ++z)
          for (dim_t k = 0; k < g.kernel[0]; ++k) {
            const dim_t at = z * g.stride[0] - g.padding[0] + k * g.dilation[0];
            if (at < 0 || at >= g.in[0]) continue;
            const T* const from =
                x + (((image * g.groups + group) * p.sources + s) * g.in[0] + at) * in_plane;
            for (dim_t y = 0; y < g.out[1]; y += p.tile_rows)
              for (dim_t c = 0; c < g.out[2]; c += p.tile_columns) {
                if (c != span_of) p.find_spans(span_of = c, spans);
                p.copy(copy, from, y, spans, whole);
                const dim_t rows = g.out[1] - y < p.tile_rows ? g.out[1] - y : p.tile_rows;
                job.length = g.out[2] - c < p.tile_columns ? g.out[2] - c : p.tile_columns;
                for (dim_t r = 0; r < p.results; ++r) {
                  const T* const given =
                      dy + (((image * g.groups + group) * p.results + r) * g.out[0] + z) * plane +
                      y * g.out[2] + c;
                  job.sums = sums + ((r * p.sources + s) * p.taps + k * taps) * width;
                  const dim_t blocked = dot == nullptr ? 0 : rows / p.block * p.block;
                  job.dy = given;
                  job.image = copy;
                  job.rows = blocked;
                  if (blocked > 0) dot(job);
                  job.dy = given + blocked * g.out[2];
                  job.image = copy + blocked * job.block_step;
                  job.rows = rows - blocked;
                  if (job.rows > 0) kernels.dot_any(job);
                }
              }
          }
    kernels.add_sums(weights, sums, dw + group * weights, accumulate);
  }
  return true;
}

}  // namespace ikebana::cpu::detail
