#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/product.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv/ways.hpp"
#include "ikebana/cpu/conv/weights/job.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/conv_memory.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/gemm.hpp"

namespace ikebana::cpu::detail {

/// A convolution of one weight for each pair of channels that meets only some positions of its
/// input, and no zeros: these are picked, in bands of rows that stay in the cache, for products.
/// Backward by data puts what comes of them back among zeros.
template <class T>
struct conv_picked {
  const conv_tiles<T>& tiles;
  const conv_pass& p;  // forward
  dim_t channels;      // of what is picked
  dim_t row, rows;     // positions of a row, rows of a band
  dim_t all = p.to[0] * p.to[1];
  dim_t plane = all * row, from_plane = conv_geometry::volume(p.from);

  static constexpr dim_t most = dim_t{1} << 18;

  conv_picked(const conv_tiles<T>& t, const conv_pass& forward)
      : tiles{t}, p{forward}, channels{p.sources}, row{p.to[2]} {
    rows = p.to[1];
    if (channels * rows * row > most)
      rows = even_part(rows, std::max(most / (channels * row), dim_t{1}));
  }

  static bool suits(const conv_pass& p) {
    const std::array<dim_t, 3> none{0, 0, 0}, one{1, 1, 1};
    bool zeros = false;
    for (std::size_t d = 0; d < 3; ++d) zeros = zeros || (p.to[d] - 1) * p.stride[d] >= p.from[d];
    return p.kernel == one && p.padding == none && p.stride != one && !zeros && p.sources > 0 &&
           p.results > 0 && p.batch > 0 && conv_geometry::volume(p.to) > 0;
  }

  T* memory() const {
    return conv_memory<T>(conv_use::operand,
                          channels * rows * row + 2 * conv_tiles<T>::most_registers * tiles.width);
  }
  dim_t bands() const { return p.to[0] * parts(p.to[1], rows); }
  /// f(image, z, y, rows) for each band of all images.
  template <class F>
  void each_band(const F& f) const {
    const dim_t of_slice = parts(p.to[1], rows), n = p.batch * bands();
    share_parts(n, grain_of(n, p.multiply_adds()), [&](dim_t begin, dim_t end) {
      for (dim_t i = begin; i < end; ++i) {
        const dim_t y = i % of_slice * rows;
        f(i / bands(), i % bands() / of_slice, y, std::min(p.to[1] - y, rows));
      }
    });
  }
  dim_t at(dim_t z, dim_t y) const {
    return (z * p.stride[0] * p.from[1] + y * p.stride[1]) * p.from[2];
  }

  void pick(const T* image, dim_t z, dim_t y, dim_t some, T* to) const {
    tiles.copy_rows({channels, from_plane, some * row, image + at(z, y), p.stride[1] * p.from[2],
                     p.stride[2], to, row, 0, some, 0, 0, row});
  }
  /// A pass over a band.
  conv_pass product(conv_pass q, dim_t some) const {
    q.batch = 1;
    q.to = {1, some, row};
    q.stride = q.step = {1, 1, 1};
    q.first = {0, 0, 0};
    return q;
  }

  void forward(const conv_operands<T>& of) const {
    each_band([&](dim_t image, dim_t z, dim_t y, dim_t some) {
      T* const picked = memory();
      pick(of.source + image * p.source_image, z, y, some, picked);
      conv_pass q = product(p, some);
      q.from = q.to;
      const dim_t to = image * p.result_image + (z * p.to[1] + y) * row;
      conv_operands<T> part = of;
      part.source = picked;
      part.result += to;
      if (part.then.residual != nullptr) part.then.residual += to;
      conv_product<T>{tiles, q, part}.run();
    });
  }

  /// `back` is the pass backward for the positions that are met; there may be a bias for each of
  /// x's channels.
  void backward_data(const conv_pass& back, const T* dy, const T* w, const T* bias, T* dx) const {
    each_band([&](dim_t image, dim_t z, dim_t y, dim_t some) {
      T* const picked = memory();
      conv_pass q = product(back, some);
      q.whole = q.to;
      const conv_operands<T> of{
          dy + image * p.result_image + (z * p.to[1] + y) * row, w, bias, picked, {}, nullptr};
      conv_product<T>{tiles, q, of}.run();
      put(picked, bias, z, y, some, dx + image * p.source_image);
    });
  }
  /// With all rows and slices of the input to the next band.
  void put(const T* picked, const T* bias, dim_t z, dim_t y, dim_t some, T* image) const {
    const dim_t slice = p.from[1] * p.from[2], first = at(z, y) % slice,
                end = y + some == p.to[1] ? slice : at(z, y + some) % slice,
                first_slice = z * p.stride[0],
                end_slice = z + 1 == p.to[0] ? p.from[0] : first_slice + p.stride[0];
    for (dim_t c = 0; c < channels; ++c, picked += some * row) {
      T* const to = image + c * from_plane;
      for (dim_t s = first_slice; s < end_slice; ++s) {
        T* const part = to + s * slice + first;
        if (bias == nullptr)
          tiles.clear(part, end - first);
        else
          std::fill(part, part + (end - first), bias[c]);
      }
      tiles.place_rows(some, row, picked, row, to + first_slice * slice + first,
                       p.stride[1] * p.from[2], p.stride[2]);
    }
  }

  void backward_weights(const weights_job<T>& job) const {
    T* const picked = memory();
    bool adds = job.accumulate;
    for (dim_t image = 0; image < p.batch; ++image)
      for (dim_t z = 0; z < p.to[0]; ++z)
        for (dim_t y = 0; y < p.to[1]; y += rows, adds = true) {
          const dim_t some = std::min(p.to[1] - y, rows), n = some * row;
          pick(job.x + image * p.source_image, z, y, some, picked);
          gemm<T>(transpose::no, transpose::yes, p.results, channels, n, T(1),
                  job.dy + image * p.result_image + (z * p.to[1] + y) * row, plane, picked, n,
                  T(adds), job.dw, channels);
        }
  }
};

/// Each false, having done nothing, where it is not the way.
template <class T>
bool run_picked(const conv_tiles<T>& tiles, const conv_pass& p, const conv_operands<T>& of) {
  if (!conv_picked<T>::suits(p)) return false;
  conv_picked<T>{tiles, p}.forward(of);
  return true;
}
template <class T>
bool picked_data(const data_job<T>& job) {
  if (!conv_picked<T>::suits(job.all)) return false;
  const conv_pass back = backward_pass(job.g, {0, 0, 0});
  share_groups(job.g.groups, job.all.multiply_adds(), [&](dim_t group) {
    const conv_operands<T> of = job.of(group);
    conv_picked<T>{job.tiles, job.all}.backward_data(back, of.source, of.weights, of.bias,
                                                     of.result);
  });
  return true;
}
template <class T>
bool picked_weights(const weights_job<T>& job) {
  if (!conv_picked<T>::suits(job.p)) return false;
  conv_picked<T>{job.tiles, job.p}.backward_weights(job);
  return true;
}

}  // namespace ikebana::cpu::detail
