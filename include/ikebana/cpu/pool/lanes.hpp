#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/pool/plan.hpp"
#include "ikebana/cpu/pool/windows.hpp"

// Maxima of windows of any kind, with their places: a plane in each lane.
namespace ikebana::cpu::detail {

/// What a band of as many planes as there are lanes needs: some rows, or slices, and the windows in
/// them. All places are in elements of a plane.
template <class T>
struct lane_windows {
  /// A window along one dimension.
  struct span {
    dim_t from, count;
  };
  dim_t steps[3];  // between the elements of a window
  dim_t input_plane, output_plane;
  dim_t first, extent, out[3];  // of the band
  const span* spans[3];
  T *source, *result, *places;
};

template <class T>
struct lane_kernel {
  dim_t width;
  void (*run)(const lane_windows<T>&, dim_t count, const T* from, T* to, std::int32_t* indices);
};

}  // namespace ikebana::cpu::detail

#define IKEBANA_CPU_BODY "ikebana/cpu/pool/maximum-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/pool/lanes-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// False, having done nothing, where there are no lanes or a band does not fit the scratch.
template <class T>
bool maxima_in_lanes(const any_windows& g, const T* x, T* y, std::int32_t* indices) {
  using span = typename lane_windows<T>::span;
  const lane_kernel<T> kernel = IKEBANA_CPU_DISPATCH_AVX(kernel_for_lane_maxima<T>)();
  const dim_t w = kernel.width, inputs = g.in[0] * g.in[1] * g.in[2],
              outputs = g.out[0] * g.out[1] * g.out[2];
  if (kernel.run == nullptr) return false;
  if (g.planes <= 0 || outputs <= 0) return true;
  const dim_t steps[] = {g.in[1] * g.in[2], g.in[2], 1};
  lane_windows<T> t{};
  t.input_plane = inputs;
  t.output_plane = outputs;
  // Bands are divided along the outermost dimension there is, so that they are contiguous.
  const std::size_t along = g.in[0] * g.out[0] > 1 ? 0 : g.in[1] * g.out[1] > 1 ? 1 : 2;
  const dim_t of_each = outputs / g.out[along];
  // What windows from one on up to another meet; dilated ones need not begin in their order.
  const auto met = [&](dim_t first, dim_t last) {
    pool_span all = g.span(along, last - 1);
    for (dim_t o = first; o < last; ++o) all.begin = least(all.begin, g.span(along, o).begin);
    return all;
  };
  const auto extent_of = [&](pool_span s) { return (s.end - s.begin) * steps[along]; };
  dim_t together = g.out[along];
  constexpr dim_t near = pool_costs::band_bytes / static_cast<dim_t>(sizeof(T));
  const auto size = [&] {
    dim_t most = 0;
    for (dim_t o = 0; o < g.out[along]; o += together)
      most = std::max(most, extent_of(met(o, least(o + together, g.out[along]))));
    t.extent = most;
    return (most + 2 * together * of_each) * w;
  };
  while (size() > near && together > 1) together = parts(together, 2);

  monotonic_scratch scratch = monotonic_scratch::of<T>();
  auto lists = monotonic_scratch::of_lists();
  scratch.allocate(t.source, (t.extent + w) * w);
  scratch.allocate(t.result, (together * of_each + w) * w);
  scratch.allocate(t.places, (together * of_each + w) * w);
  span* const spans[] = {lists.allocate<span>(g.out[0]), lists.allocate<span>(g.out[1]),
                         lists.allocate<span>(g.out[2])};
  if (!scratch.fits() || !lists.fits()) return false;
  for (std::size_t d = 0; d < 3; ++d) {
    t.steps[d] = steps[d] * g.dilation[d];
    t.out[d] = g.out[d];
    t.spans[d] = spans[d];
    for (dim_t o = 0; o < g.out[d]; ++o) {
      const pool_span s = g.span(d, o);
      spans[d][o] = {s.begin * steps[d], g.met(s, d)};
    }
  }
  for (dim_t p = 0; p < g.planes; p += w) {
    const dim_t count = least(w, g.planes - p);
    const auto of_plane = [&](dim_t plane, dim_t o) {
      return indices == nullptr ? indices : indices + plane * outputs + o;
    };
    for (dim_t o = 0; o < g.out[along]; o += together) {
      const dim_t last = least(o + together, g.out[along]);
      t.out[along] = last - o;
      t.first = met(o, last).begin * steps[along];
      t.extent = extent_of(met(o, last));
      t.spans[along] = spans[along] + o;
      kernel.run(t, count, x + p * inputs + t.first, y + p * outputs + o * of_each,
                 of_plane(p, o * of_each));
    }
  }
  return true;
}

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
