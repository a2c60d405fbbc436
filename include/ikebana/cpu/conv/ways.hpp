#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/winograd/kernels.hpp"
#include "ikebana/cpu/conv_geometry.hpp"

// The ways there are for convolutions, as pointers: a caller that knows its kernels, strides and
// channels leaves out those which these rule out, so that they need not be built. conv_ways.hpp
// makes them.
namespace ikebana::cpu::detail {

template <class T>
struct conv_plan;
template <class T>
struct conv_buffers;
template <class T>
struct conv_spread;
template <class T>
struct weights_job;

/// What convolutions may need, as far as a caller knows them.
struct conv_needs {
  bool walks = true;    // kernels of several elements, or zeros around the image
  bool ones = true;     // kernels of one element
  bool strides = true;  // that are not 1
  bool thirds = true;   // along rows: 3
  bool many = true;     // results: many_results
  bool deep = true;     // as many sources as a register holds
  bool handed = true;   // backward by data: few sources of many results, or strides
  bool winograd = true, winograd_weights = true;
};

/// What backward by data reads and writes.
template <class T>
struct data_job {
  const conv_tiles<T>& tiles;
  const conv_geometry& g;
  const conv_pass& all;  // forward
  const T *dy, *w, *bias;
  T* dx;

  conv_operands<T> of(dim_t group) const {
    const dim_t first = group * all.sources;
    return {dy + group * all.results * conv_geometry::volume(all.to),
            w + group * all.results * all.weight_result,
            bias == nullptr ? nullptr : bias + first,
            dx + first * conv_geometry::volume(all.from),
            {},
            nullptr};
  }
};

template <class T>
using panels_way = void (*)(const conv_plan<T>& plan, const conv_operands<T>& of,
                            const conv_buffers<T>& memory, const conv_job<T>& job, dim_t r0,
                            dim_t results, dim_t rows, dim_t columns, dim_t positions, dim_t depth,
                            const T* image, const T* w, bool last);

/// Of one pass.
template <class T>
struct pass_ways {
  const conv_tiles<T>& (*tiles)();
  pass_way<T> winograd;
  void (*product)(const conv_tiles<T>& tiles, const conv_pass& p, const conv_operands<T>& of);
  bool (*walk)(const pass_ways& ways, const conv_tiles<T>& tiles, const conv_pass& p,
               const conv_operands<T>& of);
  panels_way<T> panels;  // of `walk`
};
template <class T>
struct data_ways {
  const pass_ways<T>* pass;
  bool (*spread)(const data_job<T>& job);
};
template <class T>
struct weights_ways {
  const conv_tiles<T>& (*tiles)();
  weights_way<T> winograd;
  void (*product)(const weights_job<T>& job);
  void (*walk)(const weights_ways& ways, const weights_job<T>& job);
  bool (*lanes)(const weights_job<T>& job);  // of `walk`
};

}  // namespace ikebana::cpu::detail
