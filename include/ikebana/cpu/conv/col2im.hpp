#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/entries.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/conv_memory.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/gemm.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// The gradient of the data as a product of the transposed weights and dy as it stands: what each
/// position hands to the elements of the image that it met, which is added up there. Nothing else
/// is multiplied, whatever the strides and the zeros around the image. Blocks of channels and bands
/// of positions are such that what is handed over stays in the second level of the cache.
template <class T>
struct conv_col2im {
  const conv_tiles<T>& tiles;
  const conv_pass& p;  // forward
  dim_t taps = p.taps(), lines = p.to[0] * p.to[1], row = p.to[2];
  dim_t plane = lines * row, from_plane = conv_geometry::volume(p.from);
  dim_t channels = 0, rows = 0;  // of a block, of a band

  static constexpr dim_t most = conv_costs::scattered_bytes / dim_t{sizeof(T)},
                         most_positions = conv_costs::most_scattered_positions;

  conv_col2im(const conv_tiles<T>& t, const conv_pass& forward) : tiles{t}, p{forward} {}

  void fit() {
    const dim_t most_rows = least(most / taps, most_positions) / row;
    rows = even_part(lines, most_rows < 1 ? 1 : most_rows);
    // Fewer where they leave fewer lanes empty.
    for (dim_t n = rows; n > 1 && conv_costs::shortened_thirds * n * row >= most_positions; --n)
      if (computed(n) < computed(rows)) rows = n;
    channels = even_part(p.sources, most / (taps * rows * row));
  }

  /// In whole registers, by bands of n rows.
  dim_t computed(dim_t n) const {
    const dim_t left = lines % n * row, w = tiles.width;
    return lines / n * rounded_up(n * row, w) + rounded_up(left, w);
  }

  /// Elements of a row of results that meet the image at one place of the kernel, and where.
  struct piece {
    dim_t rows, length, from, to;
  };
  struct range {
    dim_t begin, end;
  };
  /// The positions from `begin` to `end` that meet an element of the image at place k.
  range met(std::size_t d, dim_t k, dim_t begin, dim_t end) const {
    const dim_t s = p.stride[d], before = p.padding[d] - k * p.dilation[d];
    const dim_t first = -floor_quotient(-before, s);
    const dim_t stop = floor_quotient(p.from[d] - 1 + before, s) + 1;
    return {first > begin ? first : begin, least(stop, end)};
  }
  dim_t place(std::size_t d, dim_t at, dim_t k) const {
    return at * p.stride[d] - p.padding[d] + k * p.dilation[d];
  }

  /// What rows [r, r + n) of the results hand over of one channel.
  dim_t list(dim_t r, dim_t n, piece* to) const {
    dim_t count = 0;
    for (dim_t z = r / p.to[1]; z * p.to[1] < r + n; ++z) {
      const dim_t top = z * p.to[1], first = r > top ? r - top : 0,
                  end = least(r + n - top, p.to[1]);
      dim_t tap = 0;
      for (dim_t kz = 0; kz < p.kernel[0]; ++kz) {
        const range slice = met(0, kz, z, z + 1);
        for (dim_t ky = 0; ky < p.kernel[1]; ++ky) {
          const range y = met(1, ky, first, end);
          for (dim_t kx = 0; kx < p.kernel[2]; ++kx, ++tap) {
            const range x = met(2, kx, 0, row);
            if (slice.begin >= slice.end || y.begin >= y.end || x.begin >= x.end) continue;
            to[count++] = {y.end - y.begin, x.end - x.begin,
                           (tap * n + top + y.begin - r) * row + x.begin,
                           (place(0, z, kz) * p.from[1] + place(1, y.begin, ky)) * p.from[2] +
                               place(2, x.begin, kx)};
          }
        }
      }
    }
    return count;
  }

  /// There may be a bias for each of x's channels.
  void run(const T* dy, const T* w, const T* bias, T* dx) const {
    const dim_t blocks = parts(p.sources, channels), n = p.batch * blocks;
    share_parts(n, grain_of(n, p.multiply_adds()), [=, this](dim_t begin, dim_t end) {
      for (dim_t i = begin; i < end; ++i) block(i / blocks, i % blocks * channels, dy, w, bias, dx);
    });
  }

  void block(dim_t image, dim_t c, const T* dy, const T* w, const T* bias, T* dx) const {
    const dim_t some = least(p.sources - c, channels);
    T* const to = dx + image * p.source_image + c * from_plane;
    if (bias == nullptr)
      tiles.clear(to, some * from_plane);
    else
      tiles.fill_rows(some, from_plane, bias + c, to, from_plane);
    const dim_t slices = parts(rows, p.to[1]) + 1, size = channels * taps * rows * row;
    monotonic_scratch scratch{nullptr, 0};
    T* handed = nullptr;
    piece* pieces = nullptr;
    const auto allocate = [&](monotonic_scratch of) {
      of.allocate(handed, size);
      of.allocate(pieces, taps * slices);
      return of.used();
    };
    const std::size_t bytes = allocate({nullptr, 0});
    allocate({conv_bytes(conv_use::beside, bytes), bytes});
    for (dim_t r = 0; r < lines; r += rows) {
      const dim_t n = least(lines - r, rows), positions = n * row;
      gemm<T>(transpose::yes, transpose::no, some * taps, positions, p.results, T(1), w + c * taps,
              p.weight_result, dy + image * p.result_image + r * row, plane, T(0), handed,
              positions);
      const dim_t count = list(r, n, pieces);
      for (dim_t i = 0; i < some; ++i)
        for (const piece* a = pieces; a < pieces + count; ++a)
          tiles.add_rows(a->rows, a->length, handed + i * taps * positions + a->from, row,
                         to + i * from_plane + a->to, p.stride[1] * p.from[2], p.stride[2]);
    }
  }
};

template <class T>
void run_col2im(const conv_table<T>& table, const conv_step& step, const conv_operands<T>& of) {
  conv_col2im<T> spread{table.tiles(), step.pass};
  spread.fit();
  spread.run(of.source, of.weights, of.bias, of.result);
}

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
