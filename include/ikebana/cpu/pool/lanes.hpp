#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/pool/rows.hpp"
#include "ikebana/cpu/pool/tiles.hpp"
#include "ikebana/cpu/pool/windows.hpp"

// Windows of small planes, a plane in each lane: for rows that are much shorter than registers.
namespace ikebana::cpu::detail {

/// What as many planes as there are lanes need. All places are in elements of a plane.
template <class T>
struct lane_windows {
  /// A window along one dimension, and what its size makes of sums.
  struct span {
    dim_t from, count;
    T factor;
  };
  dim_t steps[3];  // between the elements of a window
  dim_t extent, width, out[3];
  const span* spans[3];
  T *source, *result, *line, *places;
};

/// The lanes of maxima that may be wrong, as something was not finite.
template <class T>
struct lane_kernel {
  dim_t width;
  unsigned (*run)(const lane_windows<T>&, dim_t count, const T* from, T* to, std::int32_t* indices);
};

}  // namespace ikebana::cpu::detail

#define IKEBANA_CPU_BODY "ikebana/cpu/pool/lanes-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

/// Whether small planes have several rows, which fill a small part of a register, or less than half
/// while most elements are met more than once.
inline bool are_narrow(const pool_geometry& g, dim_t lanes) {
  const dim_t met = g.output_plane() * conv_geometry::volume(g.kernel), plane = g.input_plane();
  return lanes >= 8 && g.in[0] * g.in[1] > 2 && plane <= 512 &&
         (met >= 2 * plane ? 2 : 4) * g.in[2] <= lanes && met >= plane;
}

/// `factor` is that of all sums, or 0 if it differs; maxima have 1. False, having done nothing,
/// where planes are too large.
template <class T>
bool windows_in_lanes(const any_windows& g, const std::array<dim_t, 3>& dilation,
                      lane_kernel<T> kernel, bool backward, T factor, bool count_include_pad,
                      const T* source, T* result, std::int32_t* indices) {
  const dim_t w = kernel.width;
  if (kernel.run == nullptr) return false;
  const dim_t inputs = g.in[0] * g.in[1] * g.in[2], outputs = g.out[0] * g.out[1] * g.out[2];
  lane_windows<T> t{{g.in[1] * g.in[2] * dilation[0], g.in[2] * dilation[1], dilation[2]},
                    inputs,
                    g.in[2],
                    {g.out[0], g.out[1], g.out[2]},
                    {},
                    nullptr,
                    nullptr,
                    nullptr,
                    nullptr};
  monotonic_scratch scratch = monotonic_scratch::of<T>();
  scratch.allocate(t.source, (inputs + w) * w);
  scratch.allocate(t.result, (outputs + w) * w);
  scratch.allocate(t.line, g.in[2] * w);
  auto lists = monotonic_scratch::of_lists();
  lists.allocate(t.places, indices == nullptr ? 0 : (outputs + w) * w);
  using span = typename lane_windows<T>::span;
  span* const spans[] = {lists.allocate<span>(g.out[0]), lists.allocate<span>(g.out[1]),
                         lists.allocate<span>(g.out[2])};
  if (!scratch.fits() || !lists.fits()) return false;
  const dim_t steps[] = {g.in[1] * g.in[2], g.in[2], 1};
  for (std::size_t d = 0; d < 3; ++d) {
    t.spans[d] = spans[d];
    for (dim_t o = 0; o < g.out[d]; ++o) {
      const pool_span s = g.span(d, o);
      const dim_t size = count_include_pad ? s.padded : s.end - s.begin;
      spans[d][o] = {s.begin * steps[d], parts(s.end - s.begin, dilation[d]),
                     factor == T(0) ? T(1) / static_cast<T>(size)
                     : d == 0       ? factor
                                    : T(1)};
    }
  }
  const dim_t read = backward ? outputs : inputs, written = backward ? inputs : outputs;
  for (dim_t p = 0; p < g.planes; p += w) {
    unsigned wrong = kernel.run(t, least(w, g.planes - p), source + p * read, result + p * written,
                                indices == nullptr ? indices : indices + p * written);
    for (dim_t plane = p; wrong != 0; ++plane, wrong >>= 1)
      if ((wrong & 1) != 0)
        maxima_by_windows<T>(
            1, g.in, g.out, dilation, [&](std::size_t d, dim_t o) { return g.span(d, o); },
            source + plane * read, result + plane * written,
            indices == nullptr ? indices : indices + plane * written);
  }
  return true;
}

}  // namespace ikebana::cpu::detail
