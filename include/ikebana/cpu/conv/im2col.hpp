#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

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

/// The pass forward as a problem.
template <class T>
conv_problem forward_problem(const conv_pass& p, const conv_tiles<T>& tiles) {
  return {conv_direction::forward,
          p.batch,
          p.sources,
          p.results,
          p.from,
          p.to,
          p.kernel,
          p.stride,
          p.padding,
          p.dilation,
          dim_t{sizeof(T)},
          tiles.width};
}

/// Convolutions of one group with few positions: what each of them meets is
/// gathered in a row, and the rows of several images are multiplied by the
/// weights as they stand.
template <class T>
struct conv_im2col {
  const conv_tiles<T>& tiles;
  const conv_pass& p;  // forward
  dim_t taps, depth, plane, from_plane, images;
  bool plain;                            // rows are the columns of x
  bool outside = false;                  // whether a tap of a position is
  T *rows = nullptr, *across = nullptr;  // of x; of y
  std::int32_t* offsets = nullptr;

  // Elements of a copy: of any product, and of dot products, which read rows again and again.
  static constexpr dim_t room = conv_costs::im2col_room, most_dotted = conv_costs::most_dotted;
  static constexpr dim_t most_positions = conv_costs::most_gathered_positions;

  [[gnu::noinline]] conv_im2col(const conv_tiles<T>& t, const conv_pass& forward)
      : tiles{t},
        p{forward},
        plane{conv_geometry::volume(p.to)},
        from_plane{conv_geometry::volume(p.from)},
        images{p.batch},
        plain{is_product(forward_problem(forward, t))} {
    taps = p.taps();
    depth = p.sources * taps;
    while (images > 1 && (size(images) > room || images * plane > most_positions))
      images = (images + 1) / 2;
  }

  dim_t size(dim_t n) const { return n * plane * (depth + p.results) + plane * taps + 64; }
  void place() {
    rows = conv_memory<T>(conv_use::beside, room);
    across = rows + (images * plane * depth + 31) / 16 * 16;
    offsets = reinterpret_cast<std::int32_t*>(across + (images * plane * p.results + 31) / 16 * 16);
    if (!plain) find_offsets();
  }

  /// Where position `at` of a dimension meets element k of the kernel; negative outside of x.
  dim_t place(std::size_t d, dim_t at, dim_t k) const {
    const dim_t in = at * p.stride[d] - p.padding[d] + k * p.dilation[d];
    return in >= 0 && in < p.from[d] ? in : -1;
  }

  /// Where in x's plane each tap of each position lies, or -1 where that is
  /// outside.
  void find_offsets() {
    std::int32_t* to = offsets;
    for (dim_t z = 0; z < p.to[0]; ++z)
      for (dim_t y = 0; y < p.to[1]; ++y)
        for (dim_t x = 0; x < p.to[2]; ++x)
          for (dim_t kz = 0; kz < p.kernel[0]; ++kz)
            for (dim_t ky = 0; ky < p.kernel[1]; ++ky) {
              const dim_t in_z = place(0, z, kz), in_y = place(1, y, ky);
              const dim_t row = in_z < 0 || in_y < 0 ? -1 : (in_z * p.from[1] + in_y) * p.from[2];
              for (dim_t kx = 0; kx < p.kernel[2]; ++kx) {
                const dim_t in = place(2, x, kx);
                const bool seen = row >= 0 && in >= 0;
                outside = outside || !seen;
                *to++ = static_cast<std::int32_t>(seen ? row + in : -1);
              }
            }
  }

  const T* source(const T* x, dim_t image) const { return x + image * p.source_image; }
  dim_t result(dim_t image) const { return image * p.result_image; }

  /// Of those walked at a time, planes stay in the first level of the cache, many of which begin at
  /// the same place of a page.
  dim_t some_sources() const {
    return least(p.sources, conv_costs::least_walked_planes +
                                conv_costs::walked_elements / from_plane / 4 * 4);
  }

  void gather(const T* x, dim_t begin, dim_t n) const {
    T* to = rows;
    for (dim_t i = begin; i < begin + n; ++i, to += plane * depth) {
      const T* const from = source(x, i);
      if (plain) {
        tiles.pack_across(to, depth, from, plane, plane, depth);
        continue;
      }
      if (outside) tiles.clear(to, plane * depth);
      const dim_t some = some_sources();
      for (dim_t first = 0; first < p.sources; first += some)
        gather(from + first * from_plane, least(p.sources - first, some), to + first * taps);
    }
  }
  void gather(const T* from, dim_t sources, T* to) const {
    const std::int32_t* at = offsets;
    for (dim_t q = 0; q < plane; ++q, to += depth)
      for (dim_t k = 0; k < taps; ++k, ++at)
        if (*at >= 0) {
          const T* met = from + *at;
          T* gathered = to + k;
          dim_t s = sources;
          for (; s >= 4; s -= 4, gathered += 4 * taps, met += 4 * from_plane) {
            gathered[0] = met[0];
            gathered[taps] = met[from_plane];
            gathered[2 * taps] = met[2 * from_plane];
            gathered[3 * taps] = met[3 * from_plane];
          }
          for (; s > 0; --s, gathered += taps, met += from_plane) *gathered = *met;
        }
  }
  void scatter(T* dx, dim_t begin, dim_t n, const T* bias) const {
    const T* row = rows;
    for (dim_t i = begin; i < begin + n; ++i, row += plane * depth) {
      T* const to = dx + i * p.source_image;
      if (plain) {
        tiles.place_across(depth, plane, row, depth, bias, false, to, plane);
        continue;
      }
      if (bias != nullptr)
        tiles.fill_rows(p.sources, from_plane, bias, to, from_plane);
      else
        tiles.clear(to, p.sources * from_plane);
      const dim_t some = some_sources();
      for (dim_t first = 0; first < p.sources; first += some)
        scatter(row + first * taps, least(p.sources - first, some), to + first * from_plane);
    }
  }
  void scatter(const T* row, dim_t sources, T* to) const {
    const std::int32_t* at = offsets;
    for (dim_t q = 0; q < plane; ++q, row += depth)
      for (dim_t k = 0; k < taps; ++k, ++at)
        if (*at >= 0) {
          const T* handed = row + k;
          T* met = to + *at;
          dim_t s = sources;
          // Four at a time: the counting else takes as long as the sums.
          for (; s >= 4; s -= 4, handed += 4 * taps, met += 4 * from_plane) {
            const T sums[] = {met[0] + handed[0], met[from_plane] + handed[taps],
                              met[2 * from_plane] + handed[2 * taps],
                              met[3 * from_plane] + handed[3 * taps]};
            met[0] = sums[0];
            met[from_plane] = sums[1];
            met[2 * from_plane] = sums[2];
            met[3 * from_plane] = sums[3];
          }
          for (; s > 0; --s, handed += taps, met += from_plane) *met += *handed;
        }
  }
  void gather_dy(const T* dy, dim_t begin, dim_t n) const {
    for (dim_t i = 0; i < n; ++i)
      tiles.pack_across(across + i * plane * p.results, p.results, dy + result(begin + i), plane,
                        plane, p.results);
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
      while (images > 1 && images * plane * depth > most_dotted) images = parts(images, 2);
    place();
    product.a = rows, product.c = across;
    for (dim_t i = 0; i < p.batch; i += images) {
      const dim_t n = least(p.batch - i, images);
      gather(of.source, i, n);
      product.m = n * plane;
      make_product_part(alone, product);
      for (dim_t s = 0; s < n; ++s) {
        const dim_t at = result(i + s);
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
