#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/gemm.hpp"

namespace ikebana::cpu::detail {

/// A row of tiles of a channel: six rows of the source, `length` elements that
/// go to the buffer's six rows of `pitch` from `lead` on. What stands around
/// them there is not written. Position p of tile t goes to to[p * position_step
/// + t].
template <class T>
struct winograd_input {
  dim_t tiles;
  const T* rows[6];
  dim_t lead, length;
  T *buffer, *to;
  dim_t pitch, position_step;
};

/// to[p, r, i] = (adds ? the same : 0) + the sum over s < depth of source[p, r, s] *
/// weights[p, s, i].
template <class T>
struct winograd_product {
  dim_t rows, depth, width;
  const T* source;
  dim_t source_position, source_row, source_step;
  const T* weights;
  dim_t weight_position;
  T* to;
  dim_t to_position;
  bool adds;
};

template <class T>
struct winograd_kernels {
  dim_t width;      // of a register
  dim_t registers;  // of results, at once
  void (*take)(const winograd_input<T>&);
  void (*weigh)(dim_t sources, dim_t width, bool turned, const T* from, T* to, dim_t position_step);
  void (*multiply)(const winograd_product<T>&);
  void (*put)(dim_t tiles, dim_t width, const T* from, dim_t position_step, T* to);
  // The transposes of the last, for a register of results, and of `weigh`.
  void (*spread)(dim_t tiles, const T* from, T* to, dim_t tile_step, dim_t position_step);
  void (*gather)(dim_t sources, dim_t width, const T* from, dim_t position_step, T* to, bool adds);
};

}  // namespace ikebana::cpu::detail

#define IKEBANA_CPU_BODY "ikebana/cpu/conv/winograd-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
