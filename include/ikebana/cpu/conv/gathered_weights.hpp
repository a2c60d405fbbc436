#pragma once

#include <cstdint>
#include <cstring>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/band_plan.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"

namespace ikebana::cpu::detail {

/// A tile's weights of an image's gradient, side by side. Where they stand, those of a result and a
/// source lie together, but sources some pages apart: a cache that finds its lines by a few bits of
/// their address (AMD's first level) then loses each for the next, and none is fetched before it is
/// asked for.
template <class T>
struct gathered_weights {
  static constexpr dim_t most = 2048, most_depth = 512;
  static constexpr dim_t page = 4096 / static_cast<dim_t>(sizeof(T)), least_sources = 8;

  dim_t sources = 0, run = 0, pitch = 0, first = 0;
  std::int32_t at[most_depth];
  alignas(64) T copy[most];

  /// Of products [k, k + depth) and tiles of so many rows. False where they do not fit, stand well
  /// enough, or where most of what would be copied is no weight of this pass.
  bool lay_out(const band_plan<T>& plan, const std::int32_t* weight_at, dim_t k, dim_t depth,
               dim_t rows) {
    const conv_pass& p = plan.p;
    const dim_t taps = plan.taps;
    if (p.weight_source < page || p.weight_source <= p.weight_result || taps == 1 ||
        2 * taps < p.weight_result || depth < least_sources * taps || depth > most_depth)
      return false;
    dim_t lowest = 0, highest = 0;
    for (dim_t t = 0; t < taps; ++t) {
      lowest = least(lowest, weight_at[t]);
      if (weight_at[t] > highest) highest = weight_at[t];
    }
    const dim_t s0 = k / taps;
    sources = (k + depth - 1) / taps - s0 + 1;
    run = (rows - 1) * p.weight_result + highest - lowest + 1;
    pitch = parts(run, band_plan<T>::line) * band_plan<T>::line;
    first = s0 * p.weight_source + lowest;
    if (sources * pitch > most) return false;
    for (dim_t i = 0; i < depth; ++i) {
      const dim_t source = (k + i) / taps - s0;
      at[i] =
          static_cast<std::int32_t>(source * (pitch - p.weight_source) + weight_at[k + i] - first);
    }
    return true;
  }
  /// Those of the rows from job.weights on, as the job's. Asks for those of the rows after them, if
  /// there are `left` more.
  void gather(const band_plan<T>& plan, conv_job<T>& job, dim_t rows, dim_t left) {
    const dim_t next = rows * plan.p.weight_result, end = least(left, rows) * plan.p.weight_result;
    const T* from = job.weights + first;
    for (dim_t s = 0; s < sources; ++s, from += plan.p.weight_source) {
      std::memcpy(copy + s * pitch, from, static_cast<std::size_t>(run) * sizeof(T));
      for (dim_t i = 0; i < end; i += band_plan<T>::line) __builtin_prefetch(from + next + i);
    }
    job.weights = copy;
    job.weight_at = at;
  }
};

}  // namespace ikebana::cpu::detail
