#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/activation.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"
#include "ikebana/cpu/parallel.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::detail {

/// Continues a list of one channel's offsets, of n elements, for channels `step` apart.
inline void repeat_list(std::int32_t* list, dim_t n, dim_t channels, dim_t step) {
  for (dim_t i = n; i < channels * n; ++i) list[i] = list[i - n] + static_cast<std::int32_t>(step);
}

/// A forward convolution of one group. Backward by data is one for each residue of the input's
/// positions by the strides, of stride 1, whose results lie `step` apart.
struct conv_pass {
  dim_t batch, sources, results;  // channels
  std::array<dim_t, 3> from, to, kernel, stride, padding, dilation;
  dim_t source_image, result_image;  // elements from one image to the next
  // Where a weight lies: of result r, source c and kernel element k.
  dim_t weight_first, weight_result, weight_source;
  std::array<dim_t, 3> weight_tap;
  // Where results lie in their plane.
  std::array<dim_t, 3> whole, first, step;
  dim_t taps() const { return conv_geometry::volume(kernel); }
  bool unit_step() const { return step[0] == 1 && step[1] == 1 && step[2] == 1; }
  dim_t multiply_adds() const {
    return batch * conv_geometry::volume(to) * sources * results * taps();
  }
  /// Where in dimension d of the source position `at` meets kernel element k.
  dim_t met(std::size_t d, dim_t at, dim_t k) const {
    return at * stride[d] - padding[d] + k * dilation[d];
  }
  /// Where each weight of a result's first `channels` sources lies.
  void list_weights(dim_t channels, std::int32_t* at) const {
    std::int32_t* each = at;
    for (dim_t kz = 0; kz < kernel[0]; ++kz)
      for (dim_t ky = 0; ky < kernel[1]; ++ky)
        for (dim_t kx = 0; kx < kernel[2]; ++kx)
          *each++ = static_cast<std::int32_t>(kz * weight_tap[0] + ky * weight_tap[1] +
                                              kx * weight_tap[2]);
    repeat_list(at, taps(), channels, weight_source);
  }
  dim_t result_plane() const { return conv_geometry::volume(whole); }
  dim_t result_at(dim_t z, dim_t y, dim_t x) const {
    return ((first[0] + z * step[0]) * whole[1] + first[1] + y * step[1]) * whole[2] + first[2] +
           x * step[2];
  }
};

/// Whether so many multiply-adds are worth more than one thread, and how many of `parts` equal
/// parts of them are worth one.
using conv_costs::multiply_adds_for_thread;
inline bool shares_work(dim_t multiply_adds) {
  return multiply_adds > 2 * multiply_adds_for_thread && num_threads() > 1;
}
constexpr dim_t grain_of(dim_t parts, dim_t multiply_adds) {
  if (multiply_adds <= 2 * multiply_adds_for_thread) return parts;
  const dim_t grain = multiply_adds_for_thread / (multiply_adds / parts + 1);
  return grain > 1 ? grain : 1;
}

[[gnu::noinline]] inline void share_parts(dim_t parts, dim_t grain,
                                          ikebana::detail::range_function run, const void* f) {
  if (parts <= grain || num_threads() <= 1) return run(f, 0, parts);
  ikebana::detail::share_ranges(0, parts, grain, run, f);
}
/// As parallel_for, of work that is worth a call: f is built but once.
template <class F>
void share_parts(dim_t parts, dim_t grain, const F& f) {
  if (parts > 0)
    share_parts(
        parts, grain,
        [](const void* function, dim_t b, dim_t e) { (*static_cast<const F*>(function))(b, e); },
        &f);
}
/// f(group) for every group, on several threads where there are several. One group is divided by
/// what computes it.
template <class F>
void share_groups(dim_t groups, dim_t multiply_adds, const F& f) {
  share_parts(groups, grain_of(groups, groups * multiply_adds), [&f](dim_t begin, dim_t end) {
    for (dim_t group = begin; group < end; ++group) f(group);
  });
}

template <class T>
struct conv_table;

/// Elements by which operands are ahead of others; of `row`, the bias, scale and shift.
struct conv_offsets {
  dim_t source, weights, row, result;
};

/// What a pass reads and writes. Of the gradient of the weights, `weights` are dy.
template <class T>
struct conv_operands {
  const T *source, *weights, *bias;
  T* result;
  conv_epilogue<T> then{};
  const T* shift = nullptr;  // where `then` scales: the bias, which is then added with the scale
  bool accumulates = false;

  conv_operands ahead(const conv_offsets& by, dim_t times) const {
    const auto moved = [times](auto* p, dim_t n) { return p == nullptr ? p : p + times * n; };
    return {moved(source, by.source),
            moved(weights, by.weights),
            moved(bias, by.row),
            moved(result, by.result),
            {moved(then.residual, by.result), then.function, moved(then.scale, by.row)},
            moved(shift, by.row),
            accumulates};
  }

  /// Whether tiles do all that follows.
  bool relu() const {
    return then.residual == nullptr && then.scale == nullptr && then.function == activation::relu;
  }
  /// What tiles have not done, of rows of results from number r on, `step` apart.
  void finish(const conv_tiles<T>& tiles, dim_t rows, dim_t length, dim_t at, dim_t step,
              dim_t r) const {
    tiles.finish_rows(rows, length, result + at, step,
                      {then.scale == nullptr ? nullptr : then.scale + r,
                       shift == nullptr ? nullptr : shift + r, then.function},
                      then.residual == nullptr ? nullptr : then.residual + at);
  }
  /// Whether anything follows that they do not.
  bool finishes() const {
    return then.residual != nullptr || then.scale != nullptr ||
           (then.function != activation::none && then.function != activation::relu);
  }
};

[[gnu::noinline]] inline conv_pass forward_pass(const conv_geometry& g) {
  const auto& k = g.kernel;
  const dim_t taps = conv_geometry::volume(k), inputs = g.in_channels / g.groups;
  return {g.batch,
          inputs,
          g.out_channels / g.groups,
          g.in,
          g.out,
          k,
          g.stride,
          g.padding,
          g.dilation,
          g.in_channels * conv_geometry::volume(g.in),
          g.out_channels * conv_geometry::volume(g.out),
          0,
          inputs * taps,
          taps,
          {k[1] * k[2], k[2], 1},
          g.out,
          {0, 0, 0},
          {1, 1, 1}};
}

/// What one dimension of a pass meets: position t begins at `begin` + t times the stride, and
/// kernel element i of those there are lies i `dilation` after it; its weight is number `first` + i
/// `weight_step` of the dimension's.
struct conv_reach {
  dim_t kernel, begin, dilation, first, weight_step;
};

/// That of backward by data for the positions that leave `residue` divided by the stride. Empty
/// where no weight reaches them.
inline conv_reach backward_reach(const conv_geometry& g, std::size_t d, dim_t residue) {
  const dim_t s = g.stride[d], k = g.kernel[d], period = s / std::gcd(s, g.dilation[d]);
  // Position t s + residue meets output t + (residue + padding - k dilation) / s, for the k where
  // that is whole: every `period`th from k0 on. They are walked from the last to the first.
  dim_t k0 = 0;
  while (k0 < k && k0 < period && (residue + g.padding[d] - k0 * g.dilation[d]) % s != 0) ++k0;
  const dim_t n = k0 < k && k0 < period ? (k - k0 + period - 1) / period : 0;
  if (n == 0) return {};
  const dim_t last = k0 + (n - 1) * period;
  return {n, (residue + g.padding[d] - last * g.dilation[d]) / s, period * g.dilation[d] / s, last,
          -period};
}

/// The part of backward by data for the positions that leave `residue` divided by the strides. Its
/// kernel is empty where no weight reaches them.
inline conv_pass backward_pass(const conv_geometry& g, const std::array<dim_t, 3>& residue) {
  const auto& k = g.kernel;
  const dim_t taps = conv_geometry::volume(k), inputs = g.in_channels / g.groups;
  conv_pass p{g.batch,
              g.out_channels / g.groups,
              inputs,
              g.out,
              g.in,
              k,
              {1, 1, 1},
              {0, 0, 0},
              {1, 1, 1},
              g.out_channels * conv_geometry::volume(g.out),
              g.in_channels * conv_geometry::volume(g.in),
              0,
              taps,
              inputs * taps,
              {k[1] * k[2], k[2], 1},
              g.in,
              residue,
              g.stride};
  for (std::size_t d = 0; d < 3; ++d) {
    const dim_t s = g.stride[d];
    p.to[d] = g.in[d] > residue[d] ? (g.in[d] - residue[d] + s - 1) / s : 0;
    const conv_reach met = backward_reach(g, d, residue[d]);
    p.kernel[d] = met.kernel;
    if (met.kernel == 0) continue;
    p.padding[d] = -met.begin;
    p.dilation[d] = met.dilation;
    p.weight_first += met.first * p.weight_tap[d];
    p.weight_tap[d] *= met.weight_step;
  }
  if (p.taps() == 0) p.kernel = {0, 0, 0};
  return p;
}

/// f(pass) for every part of backward by data.
template <class F>
void each_pass(const conv_geometry& g, const F& f) {
  const auto part = [&](std::size_t d) { return least(g.in[d], g.stride[d]); };
  for (dim_t z = 0; z < part(0); ++z)
    for (dim_t y = 0; y < part(1); ++y)
      for (dim_t x = 0; x < part(2); ++x) f(backward_pass(g, {z, y, x}));
}

}  // namespace ikebana::cpu::detail
IKEBANA_CPU_END_SMALL
