#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/depthwise/bands.hpp"
#include "ikebana/cpu/conv/depthwise/kernels.hpp"
#include "ikebana/cpu/conv/depthwise/sweep.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/parallel.hpp"

// Depthwise convolutions of one dimension, of strides up to 3: rows are copied with zeros around
// them, each remainder of the positions by the stride (a phase) by itself, a few thousand elements
// at a time.
namespace ikebana::cpu::detail {

template <class T>
struct phase_sweep {
  static constexpr dim_t most_phases = 3, most_results = 1008, most_copied = 4096;

  const depthwise_kernels<T>& kernels;
  dim_t channels, batch, taps;
  dim_t source, result;       // how long their rows are
  dim_t phases, spread;       // of the source and of the result: one of them is 1
  dim_t positions;            // of a phase of the result
  dim_t first = 0, last = 0;  // a position meets from the source's this many on, up to
  dim_t chunk = 0, pitch = 0, together = 0;
  lane_term* terms[2] = {};
  dim_t counts[2] = {};
  T *copy = nullptr, *sums = nullptr;
  bool fits;

  phase_sweep(const depthwise_kernels<T>& k, const conv_geometry& g, lanes_of direction)
      : phase_sweep{k, g, direction, direction == lanes_of::backward_data} {}
  phase_sweep(const depthwise_kernels<T>& k, const conv_geometry& g, lanes_of direction,
              bool backward)
      : kernels{k},
        channels{g.groups},
        batch{g.batch},
        taps{g.kernel[2]},
        source{backward ? g.out[2] : g.in[2]},
        result{backward ? g.in[2] : g.out[2]},
        phases{backward ? 1 : g.stride[2]},
        spread{backward ? g.stride[2] : 1},
        positions{parts(result, spread)} {
    const auto is_line = [&](const auto& e) { return e[0] == 1 && e[1] == 1; };
    fits = (k.convolve_copies != nullptr || k.gradients_of_copies != nullptr) && is_line(g.in) &&
           is_line(g.out) && is_line(g.kernel) && g.padding[0] == 0 && g.padding[1] == 0 &&
           g.in_channels == channels && g.out_channels == channels &&
           g.stride[2] <= (backward ? 2 : most_phases) && 2 * positions > k.width &&
           pays(g.stride[2], direction) && place(g, backward);
  }
  /// Whether channels as lanes are not faster: where they fill few of these, where taps are few,
  /// and, but backward by data, where there are many results for each. Other ways come before where
  /// the stride is 1.
  bool pays(dim_t stride, lanes_of direction) const {
    const bool weights = direction == lanes_of::backward_weights;
    if (stride == 1) return !weights && taps <= 9;
    return 2 * channels <= kernels.width ||
           (taps <= 16 && (direction == lanes_of::backward_data ||
                           positions >= std::max((weights ? 24 : 8) * taps, dim_t{24})));
  }

  /// Finds where taps lie in a copy, and divides the calling thread's scratch. False where they do
  /// not fit.
  bool place(const conv_geometry& g, bool backward) {
    const auto at = [&](dim_t k, dim_t remainder) {
      const dim_t met = k * g.dilation[2] - g.padding[2];
      return backward ? remainder - met : met;
    };
    const auto each = [&](const auto& f) {
      for (dim_t a = 0; a < spread; ++a)
        for (dim_t k = 0; k < taps; ++k)
          if (at(k, a) % spread == 0) f(a, k, at(k, a));
    };
    first = last = floor_quotient(at(0, 0), phases * spread);
    each([&](dim_t, dim_t, dim_t met) {
      const dim_t q = floor_quotient(met, phases * spread);
      first = least(first, q);
      last = std::max(last, q);
    });
    const dim_t w = kernels.width;
    // So that copies begin with a register.
    first = floor_quotient(first, w) * w;
    const dim_t reach = last - first;
    chunk = least(rounded_up(positions, w), most_results / w * w);
    // An odd number of registers, so that phases do not contend for places in the cache.
    pitch = (parts(chunk + reach, w) | 1) * w;
    if (phases * pitch > most_copied) return false;
    together = most_copied / (phases * pitch);
    while (together > 1 && together * taps * w * dim_t{sizeof(T)} > dim_t{packed_a_bytes} / 2)
      --together;
    monotonic_scratch scratch = monotonic_scratch::of<T>(), lists = monotonic_scratch::of_lists();
    scratch.allocate(copy, together * phases * pitch + w);
    scratch.allocate(sums, rounded_up(together * taps, w) * w);
    for (dim_t a = 0; a < spread; ++a) lists.allocate(terms[a], taps);
    if (!scratch.fits() || !lists.fits()) return false;
    each([&](dim_t a, dim_t k, dim_t met) {
      const dim_t q = floor_quotient(met, phases * spread),
                  phase = spread == 1 ? met - q * phases : 0;
      terms[a][counts[a]++] = {static_cast<std::int32_t>(phase * together * pitch + q - first),
                               static_cast<std::int32_t>(k)};
    });
    return true;
  }
  void use_own_scratch() {
    monotonic_scratch scratch = monotonic_scratch::of<T>();
    scratch.allocate(copy, together * phases * pitch + kernels.width);
    scratch.allocate(sums, rounded_up(together * taps, kernels.width) * kernels.width);
  }

  /// What `count` positions from t on meet, of some rows.
  void copy_rows(const T* from, dim_t rows, dim_t t, dim_t count) const {
    const dim_t begin = std::max(t + first, dim_t{0}), lead = least(begin - t - first, pitch),
                room = least(count + last - first, pitch) - lead;
    conv_phase<T> of[most_phases];
    bool all = true;
    for (dim_t f = 0; f < phases; ++f) {
      const dim_t left = parts(source - f, phases) - begin;
      of[f] = {copy + f * together * pitch, lead, std::max(least(left, room), dim_t{0})};
      all = all && of[f].length > 0;
    }
    const T* const at = from + begin * phases;
    if (all && phases > 1 && kernels.copy_phases(rows, phases, at, source, of, pitch)) return;
    for (dim_t f = 0; f < phases; ++f) {
      if (of[f].length > 0)
        kernels.copy_rows(rows, lead, of[f].length, at + f, source, phases, of[f].to, pitch);
      else
        kernels.clear(of[f].to, rows * pitch);
    }
  }
  /// f(job, the first row, how many rows, the first position, how many) for some rows at a time,
  /// none of which is of another image.
  template <class F>
  void each_part(dim_t row, dim_t end, const F& f) const {
    for (dim_t rows; row < end; row += rows) {
      rows = std::min({together, end - row, channels - row % channels});
      for (dim_t t = 0; t < positions; t += chunk) f(row, rows, t, least(chunk, positions - t));
    }
  }
  depthwise_copies<T> job() const {
    depthwise_copies<T> of{};
    of.x = copy;
    of.x_step = pitch;
    of.w_step = taps;
    of.out_step = result;
    for (dim_t a = 0; a < spread; ++a) {
      of.terms[a] = terms[a];
      of.counts[a] = counts[a];
    }
    return of;
  }

  void convolve(const T* from, const T* w, const T* bias, bool relu, T* to) const {
    parallel_for(0, batch * channels, planes_worth(positions * taps), [&](dim_t b, dim_t e) {
      phase_sweep mine = *this;
      mine.use_own_scratch();
      depthwise_copies<T> part = mine.job();
      part.relu = relu;
      mine.each_part(b, e, [&](dim_t row, dim_t rows, dim_t t, dim_t count) {
        mine.copy_rows(from + row * source, rows, t, count);
        const dim_t c = row % channels;
        part.rows = rows;
        part.w = w + c * taps;
        part.bias = bias == nullptr ? nullptr : bias + c;
        part.out = to + row * result + t * spread;
        part.length = least(count * spread, result - t * spread);
        (spread == 1 ? kernels.convolve_copies : kernels.spread_copies)(part);
      });
    });
  }
  void find_gradients(const T* x, const T* dy, T* dw, bool accumulate) const {
    parallel_for(0, channels, planes_worth(batch * positions * taps), [&](dim_t b, dim_t e) {
      phase_sweep mine = *this;
      mine.use_own_scratch();
      depthwise_copies<T> part = mine.job();
      part.sums = mine.sums;
      for (dim_t c = b, rows; c < e; c += rows) {
        rows = least(together, e - c);
        part.rows = rows;
        std::fill(part.sums, part.sums + rounded_up(rows * taps, kernels.width) * kernels.width,
                  T(0));
        for (dim_t image = 0; image < batch; ++image)
          for (dim_t t = 0; t < positions; t += chunk) {
            const dim_t row = image * channels + c;
            part.length = least(chunk, positions - t);
            mine.copy_rows(x + row * source, rows, t, part.length);
            part.dy = dy + row * result + t;
            kernels.gradients_of_copies(part);
          }
        kernels.add_sums(rows * taps, part.sums, dw + c * taps, accumulate);
      }
    });
  }
};

template <class T>
bool convolve_phases(const depthwise_kernels<T>& kernels, const conv_geometry& g,
                     lanes_of direction, const T* source, const T* w, const T* bias, bool relu,
                     T* result) {
  const phase_sweep<T> sweep{kernels, g, direction};
  if (sweep.fits) sweep.convolve(source, w, bias, relu, result);
  return sweep.fits;
}
template <class T>
bool phase_gradients(const depthwise_kernels<T>& kernels, const conv_geometry& g, const T* x,
                     const T* dy, T* dw, bool accumulate) {
  const phase_sweep<T> sweep{kernels, g, lanes_of::backward_weights};
  if (sweep.fits) sweep.find_gradients(x, dy, dw, accumulate);
  return sweep.fits;
}

}  // namespace ikebana::cpu::detail
