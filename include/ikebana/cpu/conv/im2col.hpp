#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/conv_memory.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/gemm.hpp"

namespace ikebana::cpu::detail {

/// Convolutions of one group with few positions: what each of them meets is gathered in a row, and
/// the rows of several images are multiplied by the weights as they stand.
template <class T>
struct conv_im2col {
  const conv_tiles<T>& tiles;
  const conv_pass& p;  // forward
  dim_t taps = p.taps(), depth = p.sources * taps, images = p.batch;
  dim_t plane = conv_geometry::volume(p.to), from_plane = conv_geometry::volume(p.from);
  bool plain;                            // rows are the columns of x
  T *rows = nullptr, *across = nullptr;  // of x; of y

  [[gnu::noinline]] conv_im2col(const conv_tiles<T>& t, const conv_pass& forward)
      : tiles{t},
        p{forward},
        plain{is_product({conv_direction::forward, p.batch, p.sources, p.results, p.from, p.to,
                          p.kernel, p.stride, p.padding, p.dilation, 0, 0})} {
    while (images > 1 && (images * plane * (depth + p.results) > conv_costs::im2col_room ||
                          images * plane > conv_costs::most_gathered_positions))
      images = parts(images, 2);
  }

  void place() {
    const dim_t size = rounded_up(images * plane * depth + 16, 16);
    rows = conv_memory<T>(conv_use::beside, size + images * plane * p.results + 32);
    across = rows + size;
  }

  /// f(place in the rows, place in the image, channels) of what each position meets, of as many
  /// channels as stay in the first level of the cache.
  template <class F>
  void each_met(const F& f) const {
    const auto place = [this](std::size_t d, dim_t at, dim_t k) {
      const dim_t in = at * p.stride[d] - p.padding[d] + k * p.dilation[d];
      return in < p.from[d] ? in : -1;
    };
    const dim_t some = conv_costs::least_walked_planes + conv_costs::walked_elements / from_plane;
    for (dim_t c = 0; c < p.sources; c += some) {
      dim_t to = c * taps;
      for (dim_t z = 0; z < p.to[0]; ++z)
        for (dim_t y = 0; y < p.to[1]; ++y)
          for (dim_t x = 0; x < p.to[2]; ++x, to += depth - taps)
            for (dim_t kz = 0; kz < p.kernel[0]; ++kz)
              for (dim_t ky = 0; ky < p.kernel[1]; ++ky) {
                const dim_t in_z = place(0, z, kz), in_y = place(1, y, ky);
                const dim_t line = c * from_plane + (in_z * p.from[1] + in_y) * p.from[2];
                for (dim_t kx = 0; kx < p.kernel[2]; ++kx, ++to)
                  if (const dim_t in_x = place(2, x, kx); in_z >= 0 && in_y >= 0 && in_x >= 0)
                    f(to, line + in_x, least(p.sources - c, some));
              }
    }
  }
  /// Copies or adds what is `step` apart, four at a time: counting else takes as long.
  template <bool Adds>
  static void move(dim_t n, const T* from, dim_t step, T* to, dim_t to_step) {
    const auto moved = [&](dim_t i) __attribute__((always_inline)) {
      return Adds ? to[i * to_step] + from[i * step] : from[i * step];
    };
    for (; n >= 4; n -= 4, from += 4 * step, to += 4 * to_step) {
      const T a = moved(0), b = moved(1), c = moved(2), d = moved(3);
      to[0] = a;
      to[to_step] = b;
      to[2 * to_step] = c;
      to[3 * to_step] = d;
    }
    for (; n > 0; --n, from += step, to += to_step) *to = moved(0);
  }

  void gather(const T* x, dim_t begin, dim_t n) const {
    T* to = rows;
    for (const T* from = x + begin * p.source_image; n > 0;
         --n, to += plane * depth, from += p.source_image) {
      if (plain) {
        tiles.pack_across(to, depth, from, plane, plane, depth);
        continue;
      }
      tiles.clear(to, plane * depth);
      each_met([&](dim_t at, dim_t in, dim_t count) {
        move<false>(count, from + in, from_plane, to + at, taps);
      });
    }
  }
  void scatter(T* dx, dim_t begin, dim_t n, const T* bias) const {
    const T* row = rows;
    for (T* to = dx + begin * p.source_image; n > 0;
         --n, row += plane * depth, to += p.source_image) {
      if (plain) {
        tiles.place_across(depth, plane, row, depth, bias, false, to, plane);
        continue;
      }
      if (bias != nullptr)
        tiles.fill_rows(p.sources, from_plane, bias, to, from_plane);
      else
        tiles.clear(to, p.sources * from_plane);
      each_met([&](dim_t at, dim_t in, dim_t count) {
        move<true>(count, row + at, taps, to + in, from_plane);
      });
    }
  }
  void gather_dy(const T* dy, dim_t begin, dim_t n) const {
    for (dim_t i = 0; i < n; ++i)
      tiles.pack_across(across + i * plane * p.results, p.results,
                        dy + (begin + i) * p.result_image, plane, plane, p.results);
  }

  void forward(const conv_operands<T>& of) {
    const conv_epilogue<T>& then = of.then;
    const conv_rest<T> rest{then.scale, of.shift, then.function};
    const bool later = then.scale != nullptr || then.residual != nullptr;
    const gemm_epilogue<T> at_once{.bias = of.bias,
                                   .function = later ? final_activation<T>{} : then.function};
    // Each image gets the bits that it has alone.
    gemm_call<T> product{plane,  p.results, depth,    rows, depth, of.weights,    depth,
                         across, p.results, &at_once, T(1), T(0),  transpose::no, transpose::yes};
    const gemm_algorithm alone = gemm_algorithm_of(product);
    if (!sums_in_order(alone))
      while (images > 1 && images * plane * depth > conv_costs::most_dotted)
        images = parts(images, 2);
    place();
    product.a = rows, product.c = across;
    for (dim_t i = 0; i < p.batch; i += images) {
      const dim_t n = least(p.batch - i, images);
      gather(of.source, i, n);
      product.m = n * plane;
      make_product_part(alone, product);
      for (dim_t s = 0; s < n; ++s) {
        const dim_t at = (i + s) * p.result_image;
        tiles.place_across(p.results, plane, across + s * plane * p.results, p.results, nullptr,
                           false, of.result + at, plane);
        if (later)
          tiles.finish_rows(p.results, plane, of.result + at, plane, rest,
                            then.residual == nullptr ? nullptr : then.residual + at);
      }
    }
  }

  void backward_data(const T* dy, const T* w, T* dx, const T* bias) {
    place();
    gemm_call<T> product{plane, depth, p.results,     across,       p.results,
                         w,     depth, rows,          depth,        &no_epilogue<T>,
                         T(1),  T(0),  transpose::no, transpose::no};
    const gemm_algorithm alone = gemm_algorithm_of(product);
    for (dim_t i = 0; i < p.batch; i += images) {
      const dim_t n = least(p.batch - i, images);
      gather_dy(dy, i, n);
      product.m = n * plane;
      make_product_part(alone, product);
      scatter(dx, i, n, bias);
    }
  }

  void backward_weights(const T* x, const T* dy, T* dw, bool accumulate) {
    place();
    for (dim_t i = 0; i < p.batch; i += images) {
      const dim_t n = least(p.batch - i, images);
      gather(x, i, n);
      gather_dy(dy, i, n);
      make_product<T>({p.results, depth, n * plane, across, p.results, rows, depth, dw, depth,
                       &no_epilogue<T>, T(1), T(accumulate || i > 0), transpose::yes,
                       transpose::no});
    }
  }
};

}  // namespace ikebana::cpu::detail
