#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"

namespace ikebana::cpu::detail {

/// Without any copy, for kernels so large that none fits.
template <class T>
[[gnu::cold]] void run_plain(const conv_table<T>& table, const conv_step& step,
                             const conv_operands<T>& of) {
  const conv_pass& p = step.pass;
  const conv_tiles<T>& tiles = table.tiles();
  const T *const source = of.source, *const w = of.weights, *const bias = of.bias;
  T* const result = of.result;
  const dim_t plane = p.from[1] * p.from[2];
  for (dim_t b = 0; b < p.batch; ++b)
    for (dim_t r = 0; r < p.results; ++r)
      for (dim_t z = 0; z < p.to[0]; ++z)
        for (dim_t y = 0; y < p.to[1]; ++y)
          for (dim_t x = 0; x < p.to[2]; ++x) {
            T sum = bias != nullptr ? bias[r] : T(0);
            for (dim_t c = 0; c < p.sources; ++c)
              for (dim_t kz = 0; kz < p.kernel[0]; ++kz)
                for (dim_t ky = 0; ky < p.kernel[1]; ++ky)
                  for (dim_t kx = 0; kx < p.kernel[2]; ++kx) {
                    const dim_t sz = z * p.stride[0] - p.padding[0] + kz * p.dilation[0],
                                sy = y * p.stride[1] - p.padding[1] + ky * p.dilation[1],
                                sx = x * p.stride[2] - p.padding[2] + kx * p.dilation[2];
                    if (sz < 0 || sz >= p.met[0] || sy < 0 || sy >= p.met[1] || sx < 0 ||
                        sx >= p.met[2])
                      continue;
                    sum += source[b * p.source_image + (c * p.from[0] + sz) * plane +
                                  sy * p.from[2] + sx] *
                           w[p.weight_first + r * p.weight_result + c * p.weight_source +
                             kz * p.weight_tap[0] + ky * p.weight_tap[1] + kx * p.weight_tap[2]];
                  }
            result[b * p.result_image + r * p.result_plane() + p.result_at(z, y, x)] = sum;
          }
  const auto& then = of.then;
  if (then.function == activation::none && then.residual == nullptr && then.scale == nullptr)
    return;
  const dim_t whole = p.result_plane();
  for (dim_t b = 0; b < p.batch; ++b) {
    const dim_t at = b * p.result_image;
    of.finish(tiles, p.results, whole, at, whole, 0);
  }
}

}  // namespace ikebana::cpu::detail
