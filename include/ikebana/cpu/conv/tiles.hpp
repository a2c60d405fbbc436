#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activate.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/final_activation.hpp"
#include "ikebana/cpu/gemm.hpp"

// What the instruction sets give to convolutions. Only this is built for each of them: the loops
// around it would cost three times the compile time and run no faster.
namespace ikebana::cpu::detail {

struct position_range {
  dim_t begin, end;
};
/// Which of n positions, the first of which is at `first` of a source, lie within it.
inline position_range positions_inside(dim_t n, dim_t first, dim_t stride, dim_t extent) {
  return {first < 0 ? least(parts(-first, stride), n) : 0,
          first < extent ? least(parts(extent - first, stride), n) : 0};
}

/// What the tiles have not done: y = function(scale[r] y + shift[r] + residual) for row r.
template <class T>
struct conv_rest {
  const T *scale, *shift;  // null for none
  final_activation<T> function;
};

/// Copies of some channels: each `above` zeros, rows of `lead` zeros, `length` elements of the
/// source that are `stride` apart, and zeros up to `pitch`, then `below` zeros. What follows the
/// last row for a register may be overwritten, as whole registers spill over what is written later.
template <class T>
struct copy_job {
  dim_t channels, from_channel, to_channel;  // elements from one to the next
  const T* from;
  dim_t from_step, stride;
  T* to;
  dim_t pitch, above, rows, below, lead, length;
};

/// to[c * to_channel + first + k * dilation + i * stride] += from[c * from_channel + k * from_tap +
/// i] for c < channels, k < taps and i < length, where that lies in a row of so many columns. Reads
/// whole registers around the rows of `from`.
template <class T>
struct add_job {
  dim_t channels, taps, length;
  const T* from;
  dim_t from_channel, from_tap;
  T* to;
  dim_t to_channel, columns, first, dilation, stride;
};

/// A tile's work: out[r * out_step + j] = (adds ? the same : start[r]) + the sum over p < depth of
/// weights[weight_at[p] + r * weight_step] * image[image_at[p] + j], for every row r of the tile
/// and j < count; then its positive part where `relu`. Reads the image up to the tile's whole
/// width, whatever `count` is.
template <class T>
struct conv_job {
  dim_t depth;
  const T* weights;
  dim_t weight_step;
  const std::int32_t* weight_at;
  const T* image;
  const std::int32_t* image_at;
  const T* start;
  T* out;
  dim_t out_step, count;
  bool adds, relu;
};

/// out[r * out_row + j] = (adds ? the same : 0) + the sum over `lines` of `columns` registers of
/// their lanes' dy[r * dy_row] x[at[j]], for every row r and weight j of the tile. Registers of dy
/// lie one after another, those of x `x_step`, and lines of them `x_line` apart.
template <class T>
struct dot_job {
  dim_t lines, columns;
  const T* dy;
  dim_t dy_row;
  const T* x;
  dim_t x_line, x_step;
  const std::int32_t* at;
  T* out;
  dim_t out_row;
  bool adds;
};

/// Which parts of the tiles a caller needs: the others are not built, and null.
struct conv_parts {
  bool strides = true;  // rows whose elements lie apart
  bool slides = true;
  bool dots = true;
};

/// What plans know of an instruction set and type: bytes of an element, elements of a vector, and
/// the largest tile.
struct tile_sizes {
  static constexpr dim_t most_registers = 8;
  dim_t element, width, rows, registers;
};

/// The tiles' shapes by falling rows, the last of 1, and how wide a register is.
template <class T>
struct conv_tiles {
  static constexpr dim_t most_rows = 8;

  using slide = void (*)(const conv_job<T>&);
  /// The ends of planes take `narrow` tiles of one register, if there are any.
  struct slide_shape {
    int rows, registers;
    slide whole, narrow;
  };

  dim_t width;
  void (*clear)(T* to, dim_t n);
  /// to[r * step + i] = values[r].
  void (*fill_rows)(dim_t rows, dim_t length, const T* values, T* to, dim_t step);
  void (*copy_rows)(const copy_job<T>& job);
  void (*place_rows)(dim_t rows, dim_t length, const T* from, dim_t from_step, T* to, dim_t to_step,
                     dim_t stride);
  void (*add_rows)(const add_job<T>& job);
  void (*finish_rows)(dim_t rows, dim_t length, T* y, dim_t step, const conv_rest<T>& rest,
                      const T* residual);
  /// to[p * width + i] = from[i * ld + p] for p < depth, i < count; zero for count <= i < width.
  void (*pack_across)(T* to, dim_t width, const T* from, dim_t ld, dim_t depth, dim_t count);
  /// to[r * to_step + i] = from[i * from_step + r] + bias[r] (which may be null), or its positive
  /// part. Reads whole registers of `from`.
  void (*place_across)(dim_t rows, dim_t positions, const T* from, dim_t from_step, const T* bias,
                       bool relu, T* to, dim_t to_step);
  const slide_shape* slides;
  /// Of so many results and weights, or of one weight.
  struct dot_shape {
    int rows, weights;
    void (*whole)(const dot_job<T>&);
    void (*narrow)(const dot_job<T>&);
  };
  const dot_shape* dots;

  tile_sizes sizes() const {
    return {dim_t{sizeof(T)}, width, slides[0].rows, slides[0].registers};
  }
};

}  // namespace ikebana::cpu::detail

#define IKEBANA_CPU_BODY "ikebana/cpu/conv/copies-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv/tiles-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/conv/tiles_table-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu::detail {

template <class T, conv_parts Parts>
const conv_tiles<T>& tiles_of() {
  return IKEBANA_CPU_DISPATCH(tiles_for_conv<T, Parts>)();
}

}  // namespace ikebana::cpu::detail
