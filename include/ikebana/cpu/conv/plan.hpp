#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv_geometry.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu {

/// What a convolution gives: y, or the gradient of x or of the weights.
enum class conv_direction : unsigned char { forward, data, weights };

/// How a convolution is computed, in the order in which the algorithms are considered.
enum class conv_algorithm : unsigned char {
  depthwise_planes,  ///< Groups of one channel, 3x3: plane by plane.
  depthwise_lanes,   ///< Groups of few channels are the lanes.
  winograd,          ///< F(4x4, 3x3).
  images,            ///< Weights: images are the lanes.
  im2col,            ///< Receptive fields are rows of a product.
  passes,            ///< Data: forward convolutions of dy, one for each residue by the strides.
  bands,             ///< Bands that tiles read where they are.
};
inline constexpr conv_algorithm conv_algorithms[] = {conv_algorithm::depthwise_planes,
                                                     conv_algorithm::depthwise_lanes,
                                                     conv_algorithm::winograd,
                                                     conv_algorithm::images,
                                                     conv_algorithm::im2col,
                                                     conv_algorithm::passes,
                                                     conv_algorithm::bands};

constexpr const char* name(conv_algorithm a) {
  constexpr const char* names[] = {
      "depthwise planes", "depthwise lanes", "Winograd", "images in lanes",
      "im2col",           "passes",          "bands"};
  return names[static_cast<int>(a)];
}

/// What a convolution of one group is planned from. What the compiler does not know of it, extents,
/// channels and the batch, is negative, and kernels then may be needed.
struct conv_problem {
  static constexpr dim_t unknown = -1;

  conv_direction direction;
  dim_t batch, inputs, outputs;  ///< Channels that are read, and written.
  std::array<dim_t, 3> in, out, kernel, stride, padding, dilation;
  dim_t element;         ///< Bytes of an element.
  dim_t lanes;           ///< Elements of a vector; of several instruction sets the fewest.
  bool apart = false;    ///< A pass of `passes` that writes only some positions.
  bool is_pass = false;  ///< A pass of `passes`.
  bool exact = false;    ///< Winograd's algorithm is disabled.
  dim_t groups = 1;      ///< Of the whole convolution.

  constexpr bool knows_extents() const { return batch >= 0 && in[2] >= 0 && out[2] >= 0; }
  constexpr dim_t taps() const { return conv_geometry::volume(kernel); }
  constexpr dim_t plane() const { return conv_geometry::volume(out); }
  constexpr bool has_strides() const { return conv_geometry::volume(stride) > 1; }
};

/// Of one group of the convolution g; `in` and `out` are those of the way forward. Negative
/// channels and extents are unknown.
constexpr conv_problem problem_of(conv_direction direction, const conv_geometry& g, dim_t element,
                                  dim_t lanes) {
  const auto of_group = [&](dim_t channels) {
    return channels < 0 ? channels : channels / g.groups;
  };
  const dim_t in = of_group(g.in_channels), out = of_group(g.out_channels);
  const bool back = direction == conv_direction::data;
  conv_problem p{direction, g.batch,  back ? out : in, back ? in : out, g.in,    g.out,
                 g.kernel,  g.stride, g.padding,       g.dilation,      element, lanes};
  p.groups = g.groups;
  return p;
}

namespace detail {

constexpr bool at_least(dim_t n, dim_t least) { return n < 0 || n >= least; }
constexpr bool at_most(dim_t n, dim_t most) { return n <= most; }
/// Whether nothing but channels is summed over, in planes as they are.
constexpr bool is_product(const std::array<dim_t, 3>& kernel, const std::array<dim_t, 3>& stride,
                          const std::array<dim_t, 3>& padding, const std::array<dim_t, 3>& in,
                          const std::array<dim_t, 3>& out) {
  return conv_geometry::volume(kernel) == 1 && conv_geometry::volume(stride) == 1 && in == out &&
         padding == std::array<dim_t, 3>{};
}
constexpr dim_t whole_units(dim_t n, dim_t unit) { return (n + unit - 1) / unit * unit; }

/// The bytes that `images` copies for a line of dy at least: what it meets of x, and itself.
constexpr dim_t image_line_bytes(const conv_problem& p) {
  const dim_t rows = (p.kernel[1] - 1) * p.dilation[1] + 1,
              columns = (p.out[2] - 1) * p.stride[2] + (p.kernel[2] - 1) * p.dilation[2] + 1;
  return (p.inputs * rows * columns + p.outputs * p.out[2]) * p.lanes * p.element;
}

/// Whether images fill the lanes, and channels are too few to repay a gathering.
constexpr bool images_apply(const conv_problem& p) {
  namespace costs = conv_costs;
  if (p.direction != conv_direction::weights || p.kernel[0] != 1 || p.padding[0] != 0) return false;
  if (!at_most(p.inputs, costs::most_image_channels) ||
      !at_most(p.outputs, costs::most_image_channels))
    return false;
  return !p.knows_extents() ||
         (p.in[0] == 1 && p.out[0] == 1 && p.plane() > costs::most_positions && p.lanes > 1 &&
          4 * p.batch >= costs::filled_quarters * whole_units(p.batch, p.lanes) &&
          image_line_bytes(p) <= costs::most_line_bytes);
}

/// Whether so few channels meet that there is nothing for a matrix product to gain, and groups fill
/// lanes or are common.
constexpr bool depthwise_lanes_apply(const conv_problem& p) {
  namespace costs = conv_costs;
  if (p.groups <= 1 || p.is_pass) return false;
  // Weights' gradients and strides leave products more to copy.
  const bool copies =
      p.groups >= costs::least_lane_groups &&
      (p.direction == conv_direction::weights ? !p.knows_extents() || !images_apply(p)
                                              : p.has_strides());
  if (p.inputs >= 0 && p.outputs >= 0 &&
      p.inputs * p.outputs > (copies ? costs::most_copied_products : costs::most_group_products))
    return false;
  const bool common =
      p.kernel == std::array<dim_t, 3>{1, 3, 3} && p.stride[1] <= 2 && p.stride[2] == p.stride[1];
  if (p.groups < costs::least_lane_groups && !common) return false;
  return !p.knows_extents() ||
         (conv_geometry::volume(p.in) > 0 && conv_geometry::volume(p.out) > 0);
}
constexpr bool depthwise_planes_apply(const conv_problem& p) {
  return depthwise_lanes_apply(p) && at_most(p.inputs, 1) && at_most(p.outputs, 1) &&
         p.kernel == std::array<dim_t, 3>{1, 3, 3} && p.padding[0] == 0 &&
         p.stride[1] == p.stride[2] &&
         (p.stride[1] == 1 || (p.stride[1] == 2 && p.dilation[1] == 1 && p.dilation[2] == 1)) &&
         (!p.knows_extents() || (p.in[0] == 1 && p.out[0] == 1));
}

constexpr bool winograd_applies(const conv_problem& p) {
  namespace costs = conv_costs;
  if (p.exact || p.element != 4 || p.apart || p.direction == conv_direction::data) return false;
  if (p.kernel != std::array<dim_t, 3>{1, 3, 3} || p.padding[0] != 0) return false;
  for (std::size_t d = 1; d < 3; ++d)
    if (p.stride[d] != 1 || p.dilation[d] != 1 || p.padding[d] < 0 || p.padding[d] > 2)
      return false;
  const bool of_weights = p.direction == conv_direction::weights;
  if (of_weights ? !(at_least(p.inputs, costs::least_winograd_sources) &&
                     at_least(p.outputs, (costs::least_result_halves * p.lanes + 1) / 2))
                 : !(at_least(p.inputs, costs::least_winograd_channels) &&
                     at_most(p.inputs, costs::most_winograd_sources) &&
                     at_least(p.outputs, costs::least_winograd_channels)))
    return false;
  if (!p.knows_extents() || p.inputs < 0 || p.outputs < 0) return true;
  if (p.in[0] != 1 || p.out[0] != 1 || p.lanes < costs::least_winograd_lanes) return false;
  // Parts of tiles are computed whole.
  const dim_t plane = p.plane(), computed = whole_units(p.out[1], 4) * whole_units(p.out[2], 4);
  if (of_weights)
    return p.inputs * p.outputs >= costs::least_lane_products * p.lanes &&
           plane >= costs::least_plane_vectors * p.lanes &&
           p.batch * plane >= costs::least_positions_of_weights &&
           7 * plane >= costs::wanted_sevenths * computed;
  const dim_t transformed = 36 * p.inputs * p.outputs;
  const bool full = p.outputs >= costs::full_winograd_channels;
  // Few results must fill their registers, and the tiles.
  if (!full &&
      10 * plane * p.outputs < costs::wanted_tenths * computed * whole_units(p.outputs, p.lanes))
    return false;
  return plane >= (transformed > costs::many_transformed ? costs::least_positions_of_many
                   : full                                ? costs::least_winograd_positions
                          : costs::least_positions_of_few_channels) &&
         3 * plane >= costs::wanted_thirds * computed - costs::spared_positions &&
         transformed <= costs::most_transformed;
}

/// A problem's passes: the one that there is without strides, or what all have in common, with the
/// whole kernel and no extents.
constexpr conv_problem passes_of(conv_problem p) {
  p.direction = conv_direction::forward;
  p.is_pass = true;
  p.apart = p.has_strides();
  for (std::size_t d = 0; d < 3; ++d) {
    p.padding[d] = (p.kernel[d] - 1) * p.dilation[d] - p.padding[d];
    std::swap(p.in[d], p.out[d]);
  }
  p.stride = {1, 1, 1};
  return p;
}

constexpr bool im2col_applies(const conv_problem& p) {
  namespace costs = conv_costs;
  if (p.is_pass || p.inputs == 0 || p.outputs == 0) return false;
  if (p.direction == conv_direction::weights || !p.knows_extents()) return true;
  const dim_t plane = p.plane();
  const bool back = p.direction == conv_direction::data;
  if (plane <= costs::few_positions) return plane > 0;
  if (is_product(p.kernel, p.stride, p.padding, p.in, p.out)) return true;
  if (plane <= costs::most_positions)
    return (back && p.has_strides()) ||
           (p.inputs >= costs::many_channels && p.outputs >= costs::many_channels);
  if (!back || (!p.has_strides() && winograd_applies(passes_of(p)))) return false;
  if (p.taps() == 1) return p.has_strides();
  // What is scattered is neither copied for few results, nor multiplied by zeros around dy.
  const dim_t rows = p.outputs * p.kernel[0] * p.kernel[1];
  return p.inputs * conv_geometry::volume(p.in) * (rows + costs::copied_products) >=
         (p.inputs + costs::scattered_products) * plane * conv_geometry::volume(p.stride) * rows;
}

}  // namespace detail

/// Whether the algorithm is one for such convolutions.
constexpr bool applies(conv_algorithm algorithm, const conv_problem& p) {
  switch (algorithm) {
    case conv_algorithm::depthwise_planes:
      return detail::depthwise_planes_apply(p);
    case conv_algorithm::depthwise_lanes:
      return detail::depthwise_lanes_apply(p);
    case conv_algorithm::winograd:
      return detail::winograd_applies(p);
    case conv_algorithm::images:
      return detail::images_apply(p);
    case conv_algorithm::im2col:
      return detail::im2col_applies(p);
    case conv_algorithm::passes:
      return p.direction == conv_direction::data;
    case conv_algorithm::bands:
      return p.direction == conv_direction::forward;
  }
  return false;
}

/// The multiply-adds of a group by this algorithm, transforms and what lies between rows apart.
constexpr dim_t cost(conv_algorithm algorithm, const conv_problem& p) {
  const dim_t pairs = p.batch * p.inputs * p.outputs;
  if (algorithm == conv_algorithm::winograd)
    return pairs * 36 * ((p.out[1] + 3) / 4) * ((p.out[2] + 3) / 4);
  // What follows from the positions of y meets no other elements of x.
  const bool by_positions =
      p.direction != conv_direction::data || algorithm == conv_algorithm::im2col;
  return pairs * p.taps() * conv_geometry::volume(by_positions ? p.out : p.in);
}

namespace detail {

struct conv_set {
  unsigned algorithms = ~0U;
  bool strides = true;  // that are not 1

  constexpr bool has(conv_algorithm a) const {
    return (algorithms >> static_cast<unsigned>(a) & 1U) != 0;
  }
};

/// What a caller's room keeps: what steps were planned for, and these behind it.
struct kept_steps {
  conv_geometry geometry;
  const void *table, *tiles;  // of an instruction set
  dim_t threads, count;
  bool exact;
  conv_algorithm algorithm = conv_algorithm::bands;  // of the last step

  bool operator==(const kept_steps& o) const {
    return table == o.table && tiles == o.tiles && threads == o.threads && exact == o.exact &&
           std::memcmp(&geometry, &o.geometry, sizeof geometry) == 0;
  }
};
/// What is known of the steps where kernels are built apart.
inline constexpr std::size_t kept_steps_bytes = 256, conv_step_bytes = 640;

}  // namespace detail

/// The algorithms that a caller may need, a bit for each, and what they need of strides.
using conv_set = detail::conv_set;

/// The bytes in which a caller keeps the plan of such convolutions (conv.hpp): of the gradient of
/// the input, a step for each residue by the strides, of which there may be too many.
constexpr std::size_t conv_plan_bytes(conv_direction direction,
                                      const std::array<dim_t, 3>& stride) {
  const dim_t parts = conv_geometry::volume(stride);
  return detail::kept_steps_bytes +
         (direction != conv_direction::data ? 1 : std::size_t(parts < 4 ? parts : 4)) *
             detail::conv_step_bytes;
}

/// The algorithm of a plan that is kept; "" where there is none.
inline const char* kept_algorithm(std::span<const std::byte> room) {
  const auto* const kept = reinterpret_cast<const detail::kept_steps*>(room.data());
  return kept == nullptr || kept->table == nullptr ? "" : name(kept->algorithm);
}

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
