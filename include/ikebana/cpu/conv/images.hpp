#pragma once

#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/conv_memory.hpp"
#include "ikebana/cpu/detail/quotients.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// The gradient of the weights of planes with images as the lanes of registers: the sums over their
/// positions of dy times the element of x that a weight meets, of which neighbouring weights read
/// the same copy. A band of lines is copied at a time.
template <class T>
struct conv_images {
  const conv_tiles<T>& tiles;
  const conv_operands<T>& of;
  const conv_pass& p;
  dim_t lines;  // of a band
  dim_t w = tiles.width, taps = p.taps(), plane = p.to[1] * p.to[2];
  dim_t pitch = met(2, p.to[2]), channel = met(1, lines) * pitch * w;

  /// Elements of a dimension that n positions meet.
  dim_t met(std::size_t d, dim_t n) const {
    return (n - 1) * p.stride[d] + (p.kernel[d] - 1) * p.dilation[d] + 1;
  }

  [[gnu::noinline]] void run(dim_t begin, dim_t end) const {
    const dim_t weights = p.sources * taps, row = lines * p.to[2] * w;
    T* const x = conv_room<T>(p.sources * channel + (end - begin) * row);
    T* const dy = x + p.sources * channel;
    std::int32_t* const at = conv_list(weights);
    for (dim_t ky = 0; ky < p.kernel[1]; ++ky)
      for (dim_t kx = 0; kx < p.kernel[2]; ++kx)
        at[ky * p.kernel[2] + kx] =
            static_cast<std::int32_t>((ky * p.dilation[1] * pitch + kx * p.dilation[2]) * w);
    repeat_list(at, taps, p.sources, channel);
    bool adds = of.accumulates;
    for (dim_t i = 0; i < p.batch; i += w)
      for (dim_t y = 0; y < p.to[1]; y += lines, adds = true) {
        const dim_t used = least(p.batch - i, w), n = least(p.to[1] - y, lines);
        const T* from = of.source + i * p.source_image;
        for (dim_t c = 0; c < p.sources; ++c, from += p.from[1] * p.from[2])
          copy(from, used, y, n, x + c * channel);
        for (dim_t r = begin; r < end; ++r)
          tiles.pack_across(dy + (r - begin) * row, w,
                            of.weights + i * p.result_image + r * plane + y * p.to[2],
                            p.result_image, n * p.to[2], used);
        const auto* shape = tiles.dots;
        for (dim_t r = begin; r < end; r += shape->rows) {
          while (shape->rows > end - r) ++shape;
          dot_job<T> job{n,
                         p.to[2],
                         dy + (r - begin) * row,
                         row,
                         x,
                         p.stride[1] * pitch * w,
                         p.stride[2] * w,
                         at,
                         of.result + r * p.weight_result,
                         p.weight_result,
                         adds};
          for (dim_t left = weights, size; left > 0;
               left -= size, job.at += size, job.out += size) {
            size = left < shape->weights ? 1 : shape->weights;
            (left < shape->weights ? shape->narrow : shape->whole)(job);
          }
        }
      }
  }
  /// What n lines from number `line` on meet of a channel of some images, with zeros around it.
  void copy(const T* from, dim_t images, dim_t line, dim_t n, T* to) const {
    const dim_t left = p.met(2, 0, 0);
    const position_range x = positions_inside(pitch, left, 1, p.from[2]);
    for (dim_t i = 0; i < met(1, n); ++i, to += pitch * w) {
      const dim_t y = p.met(1, line, 0) + i;
      const bool inside = y >= 0 && y < p.from[1] && x.begin < x.end;
      tiles.clear(to, (inside ? x.begin : pitch) * w);
      if (!inside) continue;
      tiles.pack_across(to + x.begin * w, w, from + y * p.from[2] + left + x.begin, p.source_image,
                        x.end - x.begin, images);
      tiles.clear(to + x.end * w, (pitch - x.end) * w);
    }
  }
};

template <class T>
bool run_images(const conv_table<T>& table, conv_step& step, const conv_operands<T>* of) {
  if (of == nullptr) return true;
  const conv_pass& p = step.pass;
  const conv_tiles<T>& tiles = table.tiles();
  const dim_t line = (p.sources * p.stride[1] * p.from[2] + p.results * p.to[2]) * tiles.width,
              most = conv_costs::lanes_bytes / (line * dim_t{sizeof(T)});
  const conv_images<T> images{tiles, *of, p, even_part(p.to[1], most > 1 ? most : 1)};
  share_parts(p.results, grain_of(p.results, p.multiply_adds()),
              [&](dim_t begin, dim_t end) { images.run(begin, end); });
  return true;
}

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
