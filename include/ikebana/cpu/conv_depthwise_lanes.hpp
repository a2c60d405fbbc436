#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv_depthwise_kernels.hpp"
#include "ikebana/cpu/conv_depthwise_pairs.hpp"
#include "ikebana/cpu/conv_depthwise_sweep.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/conv_tiles.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/parallel.hpp"

// Depthwise convolutions of small planes, with channels as lanes: any kernel,
// stride and dilation.
namespace ikebana::cpu::detail {

enum class lanes_of : unsigned char { forward, backward_data, backward_weights };

/// A register of channels at a time: planes are turned so that they lie side by
/// side; then every result is a sum of the products that a list says.
template <class T>
struct depthwise_lanes {
  static constexpr dim_t most_terms = 4096, room = 96 * 1024 / static_cast<dim_t>(sizeof(T));

  const depthwise_kernels<T>& kernels;
  const conv_tiles<T>& tiles;
  const conv_geometry& g;
  lanes_of direction;
  dim_t in_plane, plane, taps, width;
  T *x = nullptr, *y = nullptr, *w = nullptr, *start = nullptr;
  lane_term* terms = nullptr;
  std::int32_t* counts = nullptr;

  depthwise_lanes(const depthwise_kernels<T>& k, const conv_tiles<T>& t, const conv_geometry& of,
                  lanes_of d)
      : kernels{k},
        tiles{t},
        g{of},
        direction{d},
        in_plane{conv_geometry::volume(g.in)},
        plane{conv_geometry::volume(g.out)},
        taps{conv_geometry::volume(g.kernel)},
        width{k.copying.width} {}

  /// Whether this is faster than what there is of strides and kernels that are
  /// met often.
  bool pays() const {
    if (kernels.add_lanes == nullptr || g.in_channels != g.groups || g.out_channels != g.groups ||
        g.groups < 8 || plane * taps > most_terms ||
        (2 * (in_plane + plane) + taps + 4) * width > room)
      return false;
    if (direction == lanes_of::backward_weights && plane <= 64) return true;
    bool often = false;
    if (may_sweep(kernels, g))
      for (const auto& s : kernels.sweeps) often = often || s.kernel == g.kernel[1];
    if (often) return false;
    if (may_sweep_pairs(kernels, g))
      for (const auto& s : kernels.pairs) often = often || s.kernel == g.kernel[1];
    return !often || in_plane <= 256;
  }

  /// Divides the calling thread's scratch, and lists what is summed: for every
  /// result in turn.
  void place() {
    x = reinterpret_cast<T*>(thread_scratch());
    const dim_t most = (in_plane < plane ? plane : in_plane) + 1;
    y = x + most * width;
    w = y + most * width;
    start = w + (taps + 1) * width;
    terms = reinterpret_cast<lane_term*>(start + width);
    counts = reinterpret_cast<std::int32_t*>(terms + most_terms);
  }
  dim_t results() const {
    return direction == lanes_of::forward         ? plane
           : direction == lanes_of::backward_data ? in_plane
                                                  : taps;
  }
  void list() const {
    const bool forward = direction == lanes_of::forward,
               by_tap = direction == lanes_of::backward_weights;
    const auto lane = [&](dim_t i) { return static_cast<std::int32_t>(i * width); };
    // Counted first, then put in their places: counts then say where each
    // result's end.
    for (dim_t i = 0; i <= results(); ++i) counts[i] = 0;
    const auto each = [&](auto f) {
      std::array<dim_t, 3> o{}, k{}, at{};
      dim_t to = 0;
      for (o[0] = 0; o[0] < g.out[0]; ++o[0])
        for (o[1] = 0; o[1] < g.out[1]; ++o[1])
          for (o[2] = 0; o[2] < g.out[2]; ++o[2], ++to) {
            dim_t tap = 0;
            for (k[0] = 0; k[0] < g.kernel[0]; ++k[0])
              for (k[1] = 0; k[1] < g.kernel[1]; ++k[1])
                for (k[2] = 0; k[2] < g.kernel[2]; ++k[2], ++tap) {
                  bool seen = true;
                  for (std::size_t d = 0; d < 3; ++d) {
                    at[d] = o[d] * g.stride[d] - g.padding[d] + k[d] * g.dilation[d];
                    seen = seen && at[d] >= 0 && at[d] < g.in[d];
                  }
                  if (seen) f(to, tap, (at[0] * g.in[1] + at[1]) * g.in[2] + at[2]);
                }
          }
    };
    const auto result = [&](dim_t to, dim_t tap, dim_t from) {
      return forward ? to : by_tap ? tap : from;
    };
    each([&](dim_t to, dim_t tap, dim_t from) { ++counts[result(to, tap, from) + 1]; });
    for (dim_t i = 0; i < results(); ++i) counts[i + 1] += counts[i];
    each([&](dim_t to, dim_t tap, dim_t from) {
      // The first of a result's that is still free: shifts by one, as all end
      // where the next begin.
      terms[counts[result(to, tap, from)]++] = {forward || by_tap ? lane(from) : lane(to),
                                                by_tap ? lane(to) : lane(tap)};
    });
  }

  void turn_in(T* to, const T* from, dim_t size, dim_t channels) const {
    tiles.pack_across(to, width, from, size, size, channels);
  }
  void turn_out(const T* from, dim_t size, dim_t channels, const T* bias, bool relu, T* to) const {
    tiles.place_across(channels, size, from, width, bias, relu, to, size);
  }

  /// The convolution of `source`, or backward: of dy.
  void run(const T* source, const T* weights, const T* bias, bool relu, T* result) const {
    const bool forward = direction == lanes_of::forward;
    const dim_t blocks = (g.groups + width - 1) / width, from = forward ? in_plane : plane,
                to = forward ? plane : in_plane;
    parallel_for(0, blocks, planes_worth(g.batch * plane * taps * width), [&](dim_t b, dim_t e) {
      depthwise_lanes mine = *this;
      mine.place();
      mine.list();
      for (dim_t c = b * width; c < e * width; c += width) {
        const dim_t some = g.groups - c < width ? g.groups - c : width;
        turn_in(mine.w, weights + c * taps, taps, some);
        for (dim_t image = 0; image < g.batch; ++image) {
          const dim_t at = image * g.groups + c;
          turn_in(mine.x, source + at * from, from, some);
          kernels.add_lanes(to, mine.terms, mine.counts, mine.x, mine.w, mine.y, false);
          turn_out(mine.y, to, some, bias == nullptr ? nullptr : bias + c, relu, result + at * to);
        }
      }
    });
  }

  void run_weights(const T* source, const T* dy, T* dw, bool accumulate) const {
    const dim_t blocks = (g.groups + width - 1) / width;
    parallel_for(0, blocks, planes_worth(g.batch * plane * taps * width), [&](dim_t b, dim_t e) {
      depthwise_lanes mine = *this;
      mine.place();
      mine.list();
      for (dim_t c = b * width; c < e * width; c += width) {
        const dim_t some = g.groups - c < width ? g.groups - c : width;
        if (accumulate) turn_in(mine.w, dw + c * taps, taps, some);
        for (dim_t image = 0; image < g.batch; ++image) {
          const dim_t at = image * g.groups + c;
          turn_in(mine.x, source + at * in_plane, in_plane, some);
          turn_in(mine.y, dy + at * plane, plane, some);
          kernels.add_lanes(taps, mine.terms, mine.counts, mine.x, mine.y, mine.w,
                            accumulate || image > 0);
        }
        turn_out(mine.w, taps, some, nullptr, false, dw + c * taps);
      }
    });
  }
};

}  // namespace ikebana::cpu::detail
