#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/pool/plan.hpp"

namespace ikebana::cpu {

namespace detail {

/// The part of a window along one dimension that lies in the input, and its size with the padding
/// that belongs to it.
struct pool_span {
  dim_t begin, end, padded;
};
inline pool_span span_of(const pool_geometry& g, std::size_t d, dim_t o, dim_t dilation) {
  const dim_t start = o * g.stride[d] - g.padding[d];
  const dim_t reach = start + (g.kernel[d] - 1) * dilation + 1;
  dim_t begin = start;
  while (begin < 0) begin += dilation;
  return {begin, std::min(reach, g.in[d]), std::min(reach, g.in[d] + g.padding[d]) - start};
}

/// Windows of any kind: span_of(geometry, d, o) is window o along dimension d.
struct any_windows {
  dim_t planes;
  std::array<dim_t, 3> in, out;
  const void* geometry;
  pool_span (*span_of)(const void*, std::size_t, dim_t);

  pool_span span(std::size_t d, dim_t o) const { return span_of(geometry, d, o); }
};
/// Those of g, which must outlive them, undilated.
inline any_windows windows_of(const pool_geometry& g) {
  return {g.planes, g.in, g.out, &g, [](const void* geometry, std::size_t d, dim_t o) {
            return span_of(*static_cast<const pool_geometry*>(geometry), d, o, 1);
          }};
}
inline any_windows dilated_windows_of(const pool_geometry& g) {
  return {g.planes, g.in, g.out, &g, [](const void* geometry, std::size_t d, dim_t o) {
            const auto& of = *static_cast<const pool_geometry*>(geometry);
            return span_of(of, d, o, of.dilation[d]);
          }};
}

/// Maxima window by window, and their places: what holds for any windows and any numbers. Not built
/// for each instruction set, as little comes here: not-a-number and infinities, rows that are too
/// long, windows of several sizes. `span(d, o)` is window o along dimension d.
template <class T, class Span>
void maxima_by_windows(dim_t planes, const std::array<dim_t, 3>& in,
                       const std::array<dim_t, 3>& out, const std::array<dim_t, 3>& dilation,
                       Span span, const T* x, T* y, std::int32_t* indices) {
  const dim_t windows = out[0] * out[1] * out[2];
  for (dim_t plane = 0; plane < planes; ++plane, x += in[0] * in[1] * in[2])
    for (dim_t o = 0; o < windows; ++o, ++y) {
      const pool_span z = span(0, o / (out[1] * out[2])), r = span(1, o / out[2] % out[1]),
                      c = span(2, o % out[2]);
      dim_t where = (z.begin * in[1] + r.begin) * in[2] + c.begin;
      T best = x[where];
      for (dim_t i = z.begin; i < z.end; i += dilation[0])
        for (dim_t j = r.begin; j < r.end; j += dilation[1])
          for (dim_t k = c.begin; k < c.end; k += dilation[2]) {
            const dim_t at = (i * in[1] + j) * in[2] + k;
            if (x[at] > best || x[at] != x[at]) best = x[where = at];
          }
      *y = best;
      if (indices != nullptr) *indices++ = static_cast<std::int32_t>(where);
    }
}
template <class T>
[[gnu::noinline]] void maxima_by_windows(const pool_geometry& g, const T* x, T* y,
                                         std::int32_t* indices) {
  maxima_by_windows(
      g.planes, g.in, g.out, g.dilation,
      [&](std::size_t d, dim_t o) { return span_of(g, d, o, g.dilation[d]); }, x, y, indices);
}

/// f(place in the input, number of the window, its weight) for each element of each window.
template <class T, class F>
void for_each_averaged(const any_windows& g, bool count_include_pad, dim_t divisor_override,
                       const F& f) {
  const dim_t windows = g.out[0] * g.out[1] * g.out[2];
  for (dim_t o = 0; o < g.planes * windows; ++o) {
    const pool_span z = g.span(0, o % windows / (g.out[1] * g.out[2])),
                    r = g.span(1, o / g.out[2] % g.out[1]), c = g.span(2, o % g.out[2]);
    const dim_t size = divisor_override != 0 ? divisor_override
                       : count_include_pad
                           ? z.padded * r.padded * c.padded
                           : (z.end - z.begin) * (r.end - r.begin) * (c.end - c.begin);
    const T weight = T(1) / static_cast<T>(size);
    for (dim_t i = z.begin; i < z.end; ++i)
      for (dim_t j = r.begin; j < r.end; ++j)
        for (dim_t k = c.begin; k < c.end; ++k)
          f(((o / windows * g.in[0] + i) * g.in[1] + j) * g.in[2] + k, o, weight);
  }
}
/// Averages, and what they give back, likewise.
template <class T>
void plain_averages(const any_windows& g, const T* x, T* y, bool count_include_pad,
                    dim_t divisor_override) {
  std::fill_n(y, g.planes * g.out[0] * g.out[1] * g.out[2], T(0));
  for_each_averaged<T>(g, count_include_pad, divisor_override,
                       [=](dim_t i, dim_t o, T weight) { y[o] += x[i] * weight; });
}
template <class T>
void plain_spread(const any_windows& g, const T* dy, T* dx, bool count_include_pad,
                  dim_t divisor_override) {
  std::fill_n(dx, g.planes * g.in[0] * g.in[1] * g.in[2], T(0));
  for_each_averaged<T>(g, count_include_pad, divisor_override,
                       [=](dim_t i, dim_t o, T weight) { dx[i] += dy[o] * weight; });
}

/// Each gradient goes to where the maximum was; dx is overwritten.
template <class T>
void scatter_by_index(dim_t planes, dim_t inputs, dim_t outputs, const T* dy,
                      const std::int32_t* indices, T* dx) {
  if (inputs <= 0) return;
  // As many planes are cleared together as stay in L1.
  constexpr dim_t cleared = pool_costs::cleared_bytes / static_cast<dim_t>(sizeof(T));
  const dim_t together = inputs < cleared ? cleared / inputs : 1, half = outputs / 2;
  for (dim_t first = 0; first < planes; first += together) {
    const dim_t count = planes - first < together ? planes - first : together;
    std::memset(static_cast<void*>(dx), 0, static_cast<std::size_t>(count * inputs) * sizeof(T));
    for (dim_t plane = 0; plane < count; ++plane, dx += inputs, dy += outputs, indices += outputs) {
      // Neighbours often share a maximum, and would wait for each other.
      for (dim_t o = 0; o < half; ++o) {
        dx[indices[o]] += dy[o];
        dx[indices[half + o]] += dy[half + o];
      }
      if (outputs % 2 != 0) dx[indices[outputs - 1]] += dy[outputs - 1];
    }
  }
}

}  // namespace detail
}  // namespace ikebana::cpu
