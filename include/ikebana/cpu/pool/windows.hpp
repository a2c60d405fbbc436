#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/pool/plan.hpp"

namespace ikebana::cpu {

namespace detail {

/// The part of a window along one dimension that lies in the input, and its size with the padding
/// that belongs to it.
struct pool_span {
  dim_t begin, end, padded;
};
inline pool_span span_of(const pool_geometry& g, std::size_t d, dim_t o) {
  const dim_t start = o * g.stride[d] - g.padding[d], dilation = g.dilation[d];
  const dim_t reach = start + (g.kernel[d] - 1) * dilation + 1;
  dim_t begin = start;
  while (begin < 0) begin += dilation;
  return {begin, std::min(reach, g.in[d]), std::min(reach, g.in[d] + g.padding[d]) - start};
}

/// Windows of any kind: span_of(geometry, d, o) is window o along dimension d. Where those along
/// rows are alike, they have a kernel and a stride.
struct any_windows {
  dim_t planes;
  std::array<dim_t, 3> in, out, dilation{1, 1, 1};
  const void* geometry;
  pool_span (*span_of)(const void*, std::size_t, dim_t);
  dim_t kernel = 0, stride = 0, padding = 0;

  pool_span span(std::size_t d, dim_t o) const { return span_of(geometry, d, o); }
  /// The elements in a span.
  dim_t met(pool_span s, std::size_t d) const { return parts(s.end - s.begin, dilation[d]); }
};
/// Those of g, which must outlive them.
inline any_windows windows_of(const pool_geometry& g) {
  const auto span = [](const void* geometry, std::size_t d, dim_t o) {
    return span_of(*static_cast<const pool_geometry*>(geometry), d, o);
  };
  return {g.planes, g.in, g.out, g.dilation, &g, span, g.kernel[2], g.stride[2], g.padding[2]};
}

/// What windows row by row need (separable-inl.hpp).
template <class T>
struct window_lines {
  /// The windows that an element is in.
  struct range {
    dim_t first, end;
  };
  std::array<const pool_span*, 3> spans{};  ///< Null along rows where windows are alike.
  std::array<const T*, 3> factors{};        ///< Null where sums have one factor,
  T factor = T(1);                          ///< which this is.
  std::array<const range*, 2> ranges{};     ///< Of slabs and rows, backward.
  /// A batch of padded rows, and of rows of windows, and how far these are apart.
  T *rows = nullptr, *windows = nullptr;
  /// The places of these, if wanted.
  std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>* places = nullptr;
  std::int32_t* indices = nullptr;
  dim_t batch = 1, row_pitch = 0, window_pitch = 0;

  T factor_of(dim_t z, dim_t r) const {
    return factors[0] == nullptr ? factor : factors[0][z] * factors[1][r];
  }
};

/// Maxima window by window, and their places: what holds for any windows and any numbers. Not built
/// for each instruction set, as little comes here: rows that are too long, and windows of a plane
/// with what is not finite.
template <class T>
[[gnu::noinline]] void maxima_by_windows(const any_windows& g, const T* x, T* y,
                                         std::int32_t* indices) {
  const dim_t rows = g.out[0] * g.out[1];
  for (dim_t row = 0; row < g.planes * rows; ++row) {
    const T* const plane = x + row / rows * g.in[0] * g.in[1] * g.in[2];
    const pool_span z = g.span(0, row % rows / g.out[1]), r = g.span(1, row % g.out[1]);
    for (dim_t o = 0; o < g.out[2]; ++o, ++y) {
      const pool_span c = g.span(2, o);
      dim_t where = (z.begin * g.in[1] + r.begin) * g.in[2] + c.begin;
      T best = plane[where];
      for (dim_t i = z.begin; i < z.end; i += g.dilation[0])
        for (dim_t j = r.begin; j < r.end; j += g.dilation[1])
          for (dim_t k = c.begin; k < c.end; k += g.dilation[2]) {
            const dim_t at = (i * g.in[1] + j) * g.in[2] + k;
            if (plane[at] > best || plane[at] != plane[at]) best = plane[where = at];
          }
      *y = best;
      if (indices != nullptr) *indices++ = static_cast<std::int32_t>(where);
    }
  }
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
