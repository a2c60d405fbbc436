#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"

namespace ikebana::cpu::detail {

/// A pass by rows of positions, or all passes of backward by data at once: rows have parts then,
/// one for each residue of the positions by the stride.
struct conv_rows {
  static constexpr dim_t most_parts = 4;

  dim_t batch, sources, results, source_image, result_image, weight_result, weight_source;
  std::array<dim_t, 3> from, to, kernel, stride, step;  // positions of a part lie `step` apart
  conv_reach reach[3][most_parts] = {};

  explicit conv_rows(const conv_pass& p)
      : batch{p.batch},
        sources{p.sources},
        results{p.results},
        source_image{p.source_image},
        result_image{p.result_image},
        weight_result{p.weight_result},
        weight_source{p.weight_source},
        from{p.from},
        to{p.whole},
        kernel{p.kernel},
        stride{p.stride},
        step{p.step} {
    for (std::size_t d = 0; d < 3; ++d) {
      const bool turned = p.weight_tap[d] < 0;
      reach[d][0] = {p.kernel[d], -p.padding[d], p.dilation[d], turned ? p.kernel[d] - 1 : 0,
                     turned ? -1 : 1};
    }
  }
  /// Backward by data, of a pass of which `kernel` is the whole.
  explicit conv_rows(const conv_geometry& g) : conv_rows{backward_pass(g, {0, 0, 0})} {
    kernel = g.kernel;
    for (std::size_t d = 0; d < 3; ++d)
      for (dim_t r = 0; r < least(step[d], most_parts); ++r) reach[d][r] = backward_reach(g, d, r);
  }

  // Most strides and dilations are 1, and a division takes longer than a look.
  static dim_t over(dim_t a, dim_t b) { return b == 1 ? a : a / b; }
  static dim_t rest(dim_t a, dim_t b) { return b == 1 ? 0 : a % b; }
  dim_t taps() const { return conv_geometry::volume(kernel); }
  /// Positions of a row's part.
  dim_t columns(dim_t part) const {
    return to[2] > part ? over(to[2] - part + step[2] - 1, step[2]) : 0;
  }
  const conv_reach& met(std::size_t d, dim_t at) const { return reach[d][rest(at, step[d])]; }
  dim_t origin(std::size_t d, dim_t at) const {
    return over(at, step[d]) * stride[d] + met(d, at).begin;
  }
  struct range {
    dim_t begin, end;
    bool operator==(const range&) const = default;
    dim_t size() const { return end - begin; }
  };
  /// The elements of the kernel that lie within the source.
  range seen(std::size_t d, dim_t at) const {
    const conv_reach& m = met(d, at);
    const dim_t first = origin(d, at), left = from[d] - 1 - first;
    if (m.kernel == 0) return {0, 0};
    const dim_t begin = first < 0 ? over(m.dilation - 1 - first, m.dilation) : 0;
    const dim_t end = left < 0 ? 0 : least(m.kernel, over(left, m.dilation) + 1);
    return {begin, end > begin ? end : begin};
  }

  /// The rows of the source that some of n rows of positions meet.
  range rows_met(dim_t y, dim_t n) const {
    range all{from[1], 0};
    for (dim_t i = y; i < y + n; ++i) {
      const range k = seen(1, i);
      if (k.size() == 0) continue;
      const dim_t first = origin(1, i), d = met(1, i).dilation;
      all = {std::min(all.begin, first + k.begin * d),
             std::max(all.end, first + (k.end - 1) * d + 1)};
    }
    return all.end > all.begin ? all : range{0, 0};
  }

  dim_t multiply_adds() const {
    return batch * conv_geometry::volume(to) * sources * results * taps();
  }
};

}  // namespace ikebana::cpu::detail
