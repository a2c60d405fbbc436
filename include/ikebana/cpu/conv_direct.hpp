#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/gemm.hpp"

namespace ikebana::cpu {

/// A convolution over three spatial dimensions; fewer have leading ones. x is (batch, in_channels,
/// in...), w is (out_channels, in_channels / groups, kernel...), y is (batch, out_channels,
/// out...). Position o of y meets position o stride - padding + k dilation of x, which is 0 outside
/// of x: `padding` is that before x, and the rest of it follows from `out`.
struct conv_geometry {
  dim_t batch, in_channels, out_channels, groups;
  std::array<dim_t, 3> in, out, kernel, stride, padding, dilation;

  static constexpr dim_t volume(const std::array<dim_t, 3>& e) { return e[0] * e[1] * e[2]; }
};

}  // namespace ikebana::cpu

// Convolution of stride 1 (but in the first dimension) straight from a zero-padded copy of the
// image. Where there are few channels, packing every kernel element's view of the image costs more
// than the arithmetic; the copy is made once and each kernel element reads it at an offset. Output
// positions are one flat index over the copy's rows, so that narrow planes fill registers too; what
// falls between the rows is computed and dropped. Only the tiles are built for each instruction
// set: the rest would cost three times the compile time and run no faster.
namespace ikebana::cpu::detail {

/// What the instruction sets provide, and how wide: shapes by falling rows, the last of 1.
template <class T>
struct direct_kernels {
  static constexpr dim_t most_rows = 8, most_registers = 8, most_taps = 9, most_sums = 24;

  /// out[i * out_step + j] = start[i] + sum over p < depth of weights[p * rows + i] *
  /// image[offsets[p] + j], for i < rows, j < registers * width.
  using slide = void (*)(dim_t depth, const T* weights, const std::int32_t* offsets, const T* image,
                         const T* start, T* out, dim_t out_step);
  /// The ends of planes take `narrow` tiles of one register, if there are any.
  struct slide_shape {
    int rows, registers;
    slide whole, narrow;
  };
  /// out[r * taps + s] = sum over images and positions j < steps, rounded up to registers, of
  /// dy[r * dy_row + j] * x[offsets[s] + j].
  using dot = void (*)(dim_t images, dim_t steps, const T* dy, dim_t dy_row, dim_t dy_image,
                       const T* x, dim_t x_image, const std::int32_t* offsets, T* out);
  struct dot_shape {
    int rows, taps;
    dot tile;
  };

  dim_t width;
  void (*copy_rows)(dim_t rows, dim_t length, const T* from, dim_t from_step, T* to, dim_t to_step);
  void (*pack)(T* to, dim_t width, const T* from, dim_t ld, dim_t depth, dim_t count);
  bool (*all_finite)(dim_t n, const T* x);
  slide_shape slides[5];
  dot_shape dots[3];
};

/// Whether the direct way can be taken and is the faster one: packing is spread over the results'
/// channels, so where these are many a matrix product wins.
inline bool may_be_direct(const conv_geometry& g, bool backward) {
  const dim_t results = (backward ? g.in_channels : g.out_channels) / g.groups;
  const bool empty = conv_geometry::volume(g.in) <= 0 || conv_geometry::volume(g.out) <= 0;
  return (g.stride[0] == 1 || !backward) && g.stride[1] == 1 && g.stride[2] == 1 && !empty &&
         results > 0 && results < 64;
}

/// The shape of the most rows that are not more than `left`.
template <class Shape, std::size_t N>
const Shape& shape_for(const Shape (&shapes)[N], dim_t left) {
  const Shape* s = shapes;
  while (s->rows > left) ++s;
  return *s;
}

/// to[p * width + i] = the weight of output channel p / taps, input channel i and kernel element p
/// % taps.
template <class T>
void pack_transposed(T* to, dim_t width, const T* w, dim_t taps, dim_t outputs, dim_t inputs) {
  for (dim_t o = 0; o < outputs; ++o, w += inputs * taps)
    for (dim_t tap = 0; tap < taps; ++tap, to += width)
      for (dim_t i = 0; i < width; ++i) to[i] = w[i * taps + tap];
}

/// A convolution as done directly, by bands of output rows whose copies fit the thread's scratch:
/// of one group, from `from` to `to`.
template <class T>
struct direct_plan {
  const direct_kernels<T>& kernels;
  const conv_geometry& g;
  bool backward;
  const std::array<dim_t, 3>&from, &to;
  dim_t sources, results;  // channels of the group
  dim_t taps, depth;
  std::array<dim_t, 3> padding{};
  dim_t pitch, reach;         // of the copy's rows; rows of it that one output row needs
  dim_t band = 0, bands = 0;  // rows, and into how many bands that divides a plane
  dim_t slice = 0, channel = 0;

  direct_plan(const direct_kernels<T>& k, const conv_geometry& geometry, bool back)
      : kernels{k},
        g{geometry},
        backward{back},
        from{back ? g.out : g.in},
        to{back ? g.in : g.out},
        sources{(back ? g.out_channels : g.in_channels) / g.groups},
        results{(back ? g.in_channels : g.out_channels) / g.groups},
        taps{conv_geometry::volume(g.kernel)},
        depth{sources * taps},
        reach{g.dilation[1] * (g.kernel[1] - 1) + 1} {
    for (std::size_t d = 0; d < 3; ++d)
      padding[d] = back ? g.dilation[d] * (g.kernel[d] - 1) - g.padding[d] : g.padding[d];
    // The zeros before a row also end the one above it.
    const dim_t after = to[2] + g.dilation[2] * (g.kernel[2] - 1) - from[2] - padding[2];
    const dim_t needed = from[2] + (padding[2] > after ? padding[2] : after);
    pitch = needed > to[2] ? needed : to[2];
  }

  /// Chooses the band, where `fixed` elements and `rows` rows of results beside the copies must fit
  /// the scratch. False if nothing fits.
  bool fit(dim_t fixed, dim_t rows) {
    constexpr dim_t total = static_cast<dim_t>((packed_b_bytes + packed_a_bytes) / sizeof(T));
    const dim_t copied = sources * g.kernel[0] * pitch;
    const dim_t left = total - fixed - depth - copied * (reach - 1) - slack() - 8 * lines;
    band = left < 0 ? 0 : left / (copied + rows * pitch);
    if (band <= 0) return false;
    bands = (to[1] + band - 1) / band;
    band = (to[1] + bands - 1) / bands;
    slice = (band + reach - 1) * pitch;
    channel = g.kernel[0] * slice;
    return true;
  }

  static constexpr dim_t lines = 64 / static_cast<dim_t>(sizeof(T));
  static constexpr dim_t whole_lines(dim_t n) { return (n + lines - 1) / lines * lines; }
  /// What tiles may read past the copy's end.
  dim_t slack() const { return (padding[2] > 0 ? padding[2] : 0) + overhang(); }
  dim_t copy_size() const { return whole_lines(sources * channel + slack()); }
  /// Whether each image is copied to the same places, so that the zeros around it stay.
  bool keeps_zeros() const { return to[0] == 1 && bands == 1; }
  dim_t overhang() const { return direct_kernels<T>::most_registers * kernels.width; }
  dim_t positions(dim_t rows) const { return (rows - 1) * pitch + to[2]; }

  void find_offsets(std::int32_t* offsets) const {
    for (dim_t c = 0; c < sources; ++c)
      for (dim_t kz = 0; kz < g.kernel[0]; ++kz)
        for (dim_t ky = 0; ky < g.kernel[1]; ++ky)
          for (dim_t kx = 0; kx < g.kernel[2]; ++kx) {
            // Backward the kernel is walked from its far end.
            const dim_t z = backward ? g.kernel[0] - 1 - kz : kz;
            const dim_t y = (backward ? g.kernel[1] - 1 - ky : ky) * g.dilation[1];
            const dim_t x = (backward ? g.kernel[2] - 1 - kx : kx) * g.dilation[2];
            *offsets++ = static_cast<std::int32_t>(c * channel + z * slice + y * pitch + x);
          }
  }

  /// Copies what the output rows of plane oz from oy on meet of the group at `image`.
  void copy(T* to_copy, const T* image, dim_t oz, dim_t oy) const {
    const dim_t plane = from[1] * from[2];
    const dim_t shift = padding[2] > 0 ? padding[2] : 0, skip = shift - padding[2];
    const dim_t length = from[2] - skip < pitch - shift ? from[2] - skip : pitch - shift;
    const dim_t top = oy - padding[1], height = slice / pitch;
    const dim_t first = top < 0 ? -top : 0;
    const dim_t last = from[1] - top < height ? from[1] - top : height;
    if (length <= 0 || first >= last) return;
    for (dim_t c = 0; c < sources; ++c)
      for (dim_t kz = 0; kz < g.kernel[0]; ++kz) {
        const dim_t z = oz * g.stride[0] - padding[0] + kz * g.dilation[0];
        if (z < 0 || z >= from[0]) continue;
        const T* row = image + (c * from[0] + z) * plane + (top + first) * from[2] + skip;
        T* at = to_copy + c * channel + kz * slice + first * pitch + shift;
        kernels.copy_rows(last - first, length, row, from[2], at, pitch);
      }
  }
};

template <class T>
void clear_many(T* to, dim_t n) {
  std::memset(static_cast<void*>(to), 0, static_cast<std::size_t>(n) * sizeof(T));
}

/// The convolution of `source` (backward: of the output's gradient with the weights transposed).
/// False, having done nothing, if it does not fit.
template <class T>
bool convolve_directly(const direct_kernels<T>& kernels, const conv_geometry& g, bool backward,
                       const T* source, const T* w, const T* bias, T* result) {
  using plan = direct_plan<T>;
  const dim_t width = kernels.width;
  plan p{kernels, g, backward};
  constexpr dim_t slide_rows = direct_kernels<T>::most_rows;
  const dim_t fixed = p.results * p.depth + width + slide_rows * (p.overhang() + plan::lines);
  if (!p.fit(fixed, slide_rows)) return false;
  T* const weights = reinterpret_cast<T*>(thread_scratch());
  T* const copy = weights + plan::whole_lines(p.results * p.depth + width);
  T* const tiles = copy + p.copy_size();
  const dim_t tile_step = plan::whole_lines(p.positions(p.band)) + p.overhang();
  std::int32_t* const offsets = reinterpret_cast<std::int32_t*>(tiles + slide_rows * tile_step);
  p.find_offsets(offsets);
  clear_many(copy, p.copy_size());

  const dim_t source_plane = conv_geometry::volume(p.from), plane = conv_geometry::volume(p.to);
  for (dim_t group = 0; group < g.groups; ++group) {
    const T* const group_w = w + group * p.results * p.depth;
    for (dim_t c = 0; c < p.results;) {
      const dim_t rows = shape_for(kernels.slides, p.results - c).rows;
      if (backward)
        pack_transposed(weights + c * p.depth, rows, group_w + c * p.taps, p.taps, p.sources,
                        p.results);
      else
        kernels.pack(weights + c * p.depth, rows, group_w + c * p.depth, p.depth, p.depth, rows);
      c += rows;
    }
    for (dim_t image = 0; image < g.batch; ++image) {
      const T* const from = source + (image * g.groups + group) * p.sources * source_plane;
      const dim_t channel = (image * g.groups + group) * p.results;
      for (dim_t z = 0; z < p.to[0]; ++z)
        for (dim_t y = 0; y < p.to[1]; y += p.band) {
          const dim_t rows = p.to[1] - y < p.band ? p.to[1] - y : p.band;
          const dim_t positions = p.positions(rows);
          if (!p.keeps_zeros()) clear_many(copy, p.copy_size());
          p.copy(copy, from, z, y);
          for (dim_t c = 0; c < p.results;) {
            const auto& shape = shape_for(kernels.slides, p.results - c);
            T start[slide_rows] = {};
            if (bias != nullptr)
              for (dim_t r = 0; r < shape.rows; ++r) start[r] = bias[group * p.results + c + r];
            for (dim_t at = 0; at < positions;) {
              const bool narrow = shape.narrow != nullptr && positions - at <= 2 * width;
              (narrow ? shape.narrow : shape.whole)(p.depth, weights + c * p.depth, offsets,
                                                    copy + at, start, tiles + at, tile_step);
              at += narrow ? width : shape.registers * width;
            }
            for (dim_t r = 0; r < shape.rows; ++r) {
              const T* row = tiles + r * tile_step;
              T* out = result + (channel + c + r) * plane + (z * p.to[1] + y) * p.to[2];
              kernels.copy_rows(rows, p.to[2], row, p.pitch, out, p.to[2]);
            }
            c += shape.rows;
          }
        }
    }
  }
  return true;
}

/// The gradient of the weights: dot products of the image's copy at every offset with a copy of dy
/// whose rows are as long, filled up with zeros. False, having done nothing, if it does not fit, or
/// if x is not finite: what is not would meet those zeros, and reach weights that never see it.
template <class T>
bool convolve_weights_directly(const direct_kernels<T>& kernels, const conv_geometry& g, const T* x,
                               const T* dy, T* dw, bool accumulate) {
  using plan = direct_plan<T>;
  plan p{kernels, g, false};
  const dim_t in_plane = conv_geometry::volume(g.in), plane = conv_geometry::volume(g.out);
  if (g.batch == 0 || !p.fit(p.results * 2 * plan::lines, p.results) ||
      !kernels.all_finite(g.batch * g.in_channels * in_plane, x))
    return false;
  const dim_t dy_row = plan::whole_lines(p.positions(p.band)), dy_size = p.results * dy_row;
  // Many images at a time, for each time costs a sum over the lanes of every weight.
  dim_t most = 1;
  if (p.keeps_zeros()) {
    most = static_cast<dim_t>(packed_b_bytes / sizeof(T)) / 4 / (p.copy_size() + dy_size);
    most = most < 1 ? 1 : most < g.batch ? most : g.batch;
  }
  T* const copy = reinterpret_cast<T*>(thread_scratch());
  T* const rows_copy = copy + most * p.copy_size();
  std::int32_t* const offsets = reinterpret_cast<std::int32_t*>(rows_copy + most * dy_size);
  p.find_offsets(offsets);
  clear_many(copy, most * (p.copy_size() + dy_size));

  for (dim_t group = 0; group < g.groups; ++group) {
    bool adds = accumulate;
    for (dim_t image = 0; image < g.batch; image += most) {
      const dim_t images = g.batch - image < most ? g.batch - image : most;
      for (dim_t z = 0; z < g.out[0]; ++z)
        for (dim_t y = 0; y < g.out[1]; y += p.band) {
          const dim_t rows = g.out[1] - y < p.band ? g.out[1] - y : p.band;
          if (!p.keeps_zeros()) clear_many(copy, most * (p.copy_size() + dy_size));
          for (dim_t i = 0; i < images; ++i) {
            const dim_t block = (image + i) * g.groups + group;
            p.copy(copy + i * p.copy_size(), x + block * p.sources * in_plane, z, y);
            for (dim_t c = 0; c < p.results; ++c) {
              const T* from = dy + (block * p.results + c) * plane + (z * g.out[1] + y) * g.out[2];
              T* to = rows_copy + i * dy_size + c * dy_row;
              kernels.copy_rows(rows, g.out[2], from, g.out[2], to, p.pitch);
            }
          }
          T* const group_dw = dw + group * p.results * p.depth;
          for (dim_t c = 0; c < p.results;) {
            const auto& shape = shape_for(kernels.dots, p.results - c);
            for (dim_t k = 0; k < p.depth; k += shape.taps) {
              std::int32_t tile_offsets[direct_kernels<T>::most_taps];
              T sums[direct_kernels<T>::most_sums];
              const dim_t used = p.depth - k < shape.taps ? p.depth - k : shape.taps;
              for (dim_t s = 0; s < shape.taps; ++s)
                tile_offsets[s] = offsets[k + (s < used ? s : 0)];
              shape.tile(images, p.positions(rows), rows_copy + c * dy_row, dy_row, dy_size, copy,
                         p.copy_size(), tile_offsets, sums);
              for (dim_t r = 0; r < shape.rows; ++r)
                for (dim_t s = 0; s < used; ++s) {
                  T& to = group_dw[(c + r) * p.depth + k + s];
                  to = adds ? to + sums[r * shape.taps + s] : sums[r * shape.taps + s];
                }
            }
            c += shape.rows;
          }
          adds = true;
        }
    }
  }
  return true;
}

}  // namespace ikebana::cpu::detail

#define IKEBANA_CPU_BODY "ikebana/cpu/conv_direct-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
