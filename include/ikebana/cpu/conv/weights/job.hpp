#pragma once

#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/detail/quotients.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// The gradient of the weights of one group: dw = (accumulate ? dw : 0) + the sum over images and
/// positions of dy times what the forward pass p reads of x there.
template <class T>
struct weights_job {
  static constexpr dim_t line = conv_costs::line_bytes / dim_t{sizeof(T)},
                         kib = conv_costs::kib / dim_t{sizeof(T)};

  const conv_tiles<T>& tiles;
  const conv_pass& p;
  const T *x, *dy;
  T* dw;
  bool accumulate;

  weights_job(const conv_table<T>& table, const conv_pass& pass, const conv_operands<T>& of)
      : tiles{table.tiles()},
        p{pass},
        x{of.source},
        dy{of.weights},
        dw{of.result},
        accumulate{of.accumulates} {}

  dim_t plane() const { return p.to[1] * p.to[2]; }
  dim_t dy_plane() const { return p.result_plane(); }

  /// f(begin, end) for ranges of results, multiples of `step`, that are worth a thread each: every
  /// result is summed up by one thread.
  template <class F>
  void share_results(dim_t step, const F& f) const {
    const dim_t all = p.multiply_adds();
    dim_t grain = p.results;
    if (shares_work(all)) {
      // What each thread copies of x is little where it has many results.
      const dim_t threads = num_threads();
      grain = parts(parts(p.results, threads), step) * step;
      const dim_t least_grain = grain_of(p.results, all);
      if (grain < least_grain) grain = parts(least_grain, step) * step;
    }
    share_parts(p.results, grain, f);
  }

  /// All weights of the tile's rows, so many of each.
  void sum_up(dot_job<T>& job, const typename conv_tiles<T>::dot_shape& shape,
              const std::int32_t* offsets, dim_t count, bool adds, T* to) const {
    for (dim_t k = 0; k < count; k += shape.taps) {
      std::int32_t some_offsets[conv_tiles<T>::most_taps];
      T sums[conv_tiles<T>::most_sums];
      const dim_t used = least(count - k, shape.taps);
      for (dim_t s = 0; s < shape.taps; ++s) some_offsets[s] = offsets[k + (s < used ? s : 0)];
      job.offsets = some_offsets;
      shape.tile(job, sums);
      for (dim_t i = 0; i < shape.rows; ++i)
        for (dim_t s = 0; s < used; ++s) {
          T& weight = to[i * p.weight_result + k + s];
          weight = adds ? weight + sums[i * shape.taps + s] : sums[i * shape.taps + s];
        }
    }
  }
};

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
