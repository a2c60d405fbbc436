#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/product.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/conv_memory.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/gemm.hpp"

namespace ikebana::cpu::detail {

/// Convolutions of one group with few positions: what each of them meets is
/// gathered in a row, and the rows of several images are multiplied by the
/// weights as they stand.
template <class T>
struct conv_columns {
  const conv_tiles<T>& tiles;
  const conv_pass& p;  // forward
  dim_t group;
  std::array<dim_t, 3> lead{0, 0, 0}, kernel = p.kernel;  // the part of the kernel that is taken
  dim_t taps, depth, plane, from_plane, images;
  bool plain;                            // rows are the columns of x
  bool outside = false;                  // whether a tap of a position is
  T *rows = nullptr, *across = nullptr;  // of x; of y
  std::int32_t* offsets = nullptr;

  static constexpr dim_t room = dim_t{480} * 1024, most_positions = 256, most_plane = 64,
                         most_dotted = dim_t{48} * 1024;

  [[gnu::noinline]] conv_columns(const conv_tiles<T>& t, const conv_pass& forward, dim_t number)
      : tiles{t},
        p{forward},
        group{number},
        plane{conv_geometry::volume(p.to)},
        from_plane{conv_geometry::volume(p.from)},
        images{p.batch},
        plain{is_product(p)} {
    if (plane <= most_plane) leave_unmet();
    taps = conv_geometry::volume(kernel);
    depth = p.sources * taps;
    while (images > 1 && (size(images) > room || images * plane > most_positions))
      images = (images + 1) / 2;
  }

  /// Takes the part of the kernel beside which nothing is ever met, where that is worth copying the
  /// weights: 3x3 around one position is one element.
  void leave_unmet() {
    std::array<dim_t, 3> begin{0, 0, 0}, size = p.kernel;
    for (std::size_t d = 0; d < 3; ++d) {
      const auto met = [&](dim_t k) {
        for (dim_t at = 0; at < p.to[d]; ++at)
          if (place(d, at, k) >= 0) return true;
        return false;
      };
      while (size[d] > 0 && !met(begin[d] + size[d] - 1)) --size[d];
      while (size[d] > 0 && !met(begin[d])) ++begin[d], --size[d];
    }
    const dim_t all = p.taps(), some = conv_geometry::volume(size);
    if (some > 0 && 2 * some <= all) lead = begin, kernel = size;
  }
  bool whole() const { return taps == p.taps(); }
  /// f(at, i): where each weight that is taken of pair c of channels lies, and its number.
  template <class F>
  void each_taken(dim_t c, const F& f) const {
    const dim_t row = kernel[2];
    dim_t i = c * taps;
    for (dim_t kz = lead[0]; kz < lead[0] + kernel[0]; ++kz)
      for (dim_t ky = lead[1]; ky < lead[1] + kernel[1]; ++ky) {
        const dim_t at = ((c * p.kernel[0] + kz) * p.kernel[1] + ky) * p.kernel[2] + lead[2];
        for (dim_t kx = 0; kx < row; ++kx) f(at + kx, i++);
      }
  }
  /// The group's weights, or the copy of those that are taken.
  const T* weights(const T* w) const {
    w += group * p.results * p.weight_result;
    if (whole()) return w;
    T* const copy = conv_memory<T>(conv_use::operand, p.results * depth);
    for (dim_t c = 0; c < p.results * p.sources; ++c)
      each_taken(c, [=](dim_t at, dim_t i) { copy[i] = w[at]; });
    return copy;
  }

  dim_t size(dim_t n) const { return n * plane * (depth + p.results) + plane * taps + 64; }
  bool fits() const {
    return plane > 0 && plane <= most_plane && depth > 0 && from_plane > 0 && p.results > 0 &&
           size(images) <= room;
  }
  bool strides() const { return p.stride[0] * p.stride[1] * p.stride[2] > 1; }

  // Whether this is faster than the other ways, as measured.
  bool forward_pays() const {
    return fits() && (plane <= 8 || (plane <= 16 && (plain || p.sources >= 16)) ||
                      (plain && p.sources >= 32 && p.results >= 32));
  }
  bool backward_data_pays() const {
    return fits() && (plane <= 8 || (plane <= 16 && p.results >= 4) || strides() ||
                      (plain && p.sources >= 32 && p.results >= 32));
  }
  bool backward_weights_pays() const {
    return fits() && (plane <= 4 || (p.batch * plane <= (p.results >= 128 ? 64 : 32) && !plain &&
                                     (plane <= 8 || p.results >= 32)));
  }

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
          for (dim_t kz = lead[0]; kz < lead[0] + kernel[0]; ++kz)
            for (dim_t ky = lead[1]; ky < lead[1] + kernel[1]; ++ky) {
              const dim_t in_z = place(0, z, kz), in_y = place(1, y, ky);
              const dim_t row = in_z < 0 || in_y < 0 ? -1 : (in_z * p.from[1] + in_y) * p.from[2];
              for (dim_t kx = lead[2]; kx < lead[2] + kernel[2]; ++kx) {
                const dim_t in = place(2, x, kx);
                const bool seen = row >= 0 && in >= 0;
                outside = outside || !seen;
                *to++ = static_cast<std::int32_t>(seen ? row + in : -1);
              }
            }
  }

  const T* source(const T* x, dim_t image) const {
    return x + image * p.source_image + group * p.sources * from_plane;
  }
  dim_t result(dim_t image) const { return image * p.result_image + group * p.results * plane; }

  /// Of those walked at a time, planes stay in the first level of the cache, many of which begin at
  /// the same place of a page.
  dim_t some_sources() const { return least(p.sources, 8 + 8192 / from_plane / 4 * 4); }

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
      T* const to = dx + i * p.source_image + group * p.sources * from_plane;
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

  void forward(const T* x, const T* w, const T* bias, T* y, const conv_epilogue<T>& then) {
    const T* const taken = weights(w);
    const conv_rest<T> rest{then.scale == nullptr ? nullptr : then.scale + group * p.results,
                            bias == nullptr ? nullptr : bias + group * p.results, then.function};
    const bool later = then.scale != nullptr || then.residual != nullptr;
    const gemm_epilogue<T> at_once{.bias = then.scale != nullptr ? nullptr : rest.shift,
                                   .function = later ? final_activation<T>{} : then.function};
    // Each image gets the bits that it has alone.
    gemm_call<T> product{plane,  p.results, depth,    rows, depth, taken,         depth,
                         across, p.results, &at_once, T(1), T(0),  transpose::no, transpose::yes};
    const gemm_algorithm alone = gemm_algorithm_of(product);
    if (!sums_in_order(alone))
      while (images > 1 && images * plane * depth > most_dotted) images = parts(images, 2);
    place();
    product.a = rows, product.c = across;
    for (dim_t i = 0; i < p.batch; i += images) {
      const dim_t n = least(p.batch - i, images);
      gather(x, i, n);
      product.m = n * plane;
      make_product_part(alone, product);
      for (dim_t s = 0; s < n; ++s) {
        const dim_t at = result(i + s);
        tiles.place_across(p.results, plane, across + s * plane * p.results, p.results, nullptr,
                           false, y + at, plane);
        if (later)
          tiles.finish_rows(p.results, plane, y + at, plane, rest,
                            then.residual == nullptr ? nullptr : then.residual + at);
      }
    }
  }

  void backward_data(const T* dy, const T* w, T* dx, const T* bias) {
    place();
    const T* const taken = weights(w);
    gemm_call<T> product{plane, depth, p.results,     across,       p.results,
                         taken, depth, rows,          depth,        &no_epilogue<T>,
                         T(1),  T(0),  transpose::no, transpose::no};
    const gemm_algorithm alone = gemm_algorithm_of(product);
    for (dim_t i = 0; i < p.batch; i += images) {
      const dim_t n = least(p.batch - i, images);
      gather_dy(dy, i, n);
      product.m = n * plane;
      make_product_part(alone, product);
      scatter(dx, i, n, bias == nullptr ? nullptr : bias + group * p.sources);
    }
  }

  void backward_weights(const T* x, const T* dy, T* dw, bool accumulate) {
    place();
    dw += group * p.results * p.weight_result;
    T* const sums = whole() ? dw : conv_memory<T>(conv_use::operand, p.results * depth);
    for (dim_t i = 0; i < p.batch; i += images) {
      const dim_t n = least(p.batch - i, images);
      gather(x, i, n);
      gather_dy(dy, i, n);
      make_product<T>({p.results, depth, n * plane, across, p.results, rows, depth, sums, depth,
                       &no_epilogue<T>, T(1), T((whole() && accumulate) || i > 0), transpose::yes,
                       transpose::no});
    }
    if (whole()) return;
    if (!accumulate) tiles.clear(dw, p.results * p.weight_result);
    for (dim_t c = 0; c < p.results * p.sources; ++c)
      each_taken(c, [=](dim_t at, dim_t i) { dw[at] += sums[i]; });
  }
};

}  // namespace ikebana::cpu::detail
