#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "ikebana/cpu/pad.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/border.hpp"
#include "ikebana/nn/detail/spatial.hpp"

// Modules that widen the last one, two or three dimensions of [N, C, spatial...] or unbatched [C,
// spatial...]. Their option padding<..> takes one number for all sides, or two for each dimension
// in PyTorch's order: left, right, top, bottom, front, back. Several dimensions also take one
// number each, in the order of the dimensions, as convolutions do. O(output elements); no
// allocation.
namespace ikebana {

namespace detail {

/// What the padding modules share. Name is the module's kind without the number of dimensions.
template <literal Name, std::size_t N, cpu::border Border, class... Options>
struct padded_sides {
  static_assert(N >= 1 && N <= 3);
  static_assert(option_set<padding<>>::template accepts<Options...> &&
                    times_given<padding_option, Options...> == 1,
                "ikebana: a padding module takes the option padding<..>, once");

  static constexpr auto given = option_or<padding<0>, Options...>::values;
  static_assert(given.size() == 1 || given.size() == N || given.size() == 2 * N,
                "ikebana: a padding module takes padding of one number, one for each dimension, or "
                "two for each (left, right, top, bottom, front, back)");
  static_assert(all_at_least(given, 0), "ikebana: a padding module takes padding of at least 0");

  static constexpr std::string_view kind = joined<Name, digit<N>, "d">;
  static constexpr kept keeps = kept::nothing;

  /// Positions before (end = 0) or after (end = 1) each dimension.
  static constexpr std::array<dim_t, N> at_end(std::size_t end) {
    std::array<dim_t, N> p{};
    for (std::size_t i = 0; i < N; ++i)
      p[i] = given[given.size() == 1 ? 0 : given.size() == N ? i : 2 * (N - 1 - i) + end];
    return p;
  }
  static constexpr auto before = at_end(0), after = at_end(1);

  static constexpr inferred infer(const shape& in) {
    if (in.rank() != N + 1 && in.rank() != N + 2)
      return diagnostic{
          joined<Name, digit<N>, "d expects an input of ", digit<N + 1>, " (unbatched) or ",
                 digit<N + 2>, " dimensions, got {got} (input {input})">,
          N + 2, static_cast<dim_t>(in.rank()), in};
    shape out = in;
    for (std::size_t i = 0; i < N; ++i) {
      dim_t& extent = out[in.rank() - N + i];
      if (extent < 0) continue;
      const dim_t most = before[i] < after[i] ? after[i] : before[i];
      if (const diagnostic wrong = check_border<Name, N>(Border, in, extent, most); !wrong.ok())
        return wrong;
      extent += before[i] + after[i];
    }
    return out;
  }

  static constexpr dim_t multiply_adds(const shape_list&, const shape_list&) { return 0; }

  static void describe(description& d) {
    std::array<dim_t, 2 * N> sides{};
    for (std::size_t i = 0; i < N; ++i) {
      sides[2 * i] = before[N - 1 - i];
      sides[2 * i + 1] = after[N - 1 - i];
    }
    d.add("padding", sides);
  }

  template <class T>
  static void forward(const context<T>& c) {
    widen(c, T{0});
  }

  template <class T>
  static void backward(const context<T>& c) {
    if (c.input_gradient() != nullptr)
      cpu::pad_backward<T>(geometry(c), Border, c.output_gradient(), c.input_gradient());
  }

 protected:
  template <class T>
  static void widen(const context<T>& c, T constant) {
    cpu::pad_forward<T>(geometry(c), Border, c.input(), c.output(), constant);
  }

  template <class T>
  static cpu::pad_geometry geometry(const context<T>& c) {
    const shape& in = c.input_shape();
    return {in.numel(0, in.rank() - N), spatial_extents<N>(in), in_three(before, 0),
            spatial_extents<N>(c.output_shape())};
  }
};

}  // namespace detail

/// Adds zeros at the ends of the last dimensions.
template <std::size_t Spatial, class... Options>
struct zero_pad : detail::padded_sides<"zero_pad", Spatial, cpu::border::constant, Options...> {
  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// Adds `value` at the ends of the last dimensions.
template <std::size_t Spatial, class... Options>
struct constant_pad
    : detail::padded_sides<"constant_pad", Spatial, cpu::border::constant, Options...> {
  double value = 0;

  constexpr constant_pad() = default;
  constexpr explicit constant_pad(double constant) : value{constant} {}

  void describe(description& d) const {
    constant_pad::padded_sides::describe(d);
    d.add("value", value);
  }

  template <class T>
  void forward(const context<T>& c) const {
    constant_pad::widen(c, static_cast<T>(value));
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// Adds the mirror image of the input without its edge: 3 2 | 1 2 3. Padding is less than the
/// extent.
template <std::size_t Spatial, class... Options>
struct reflection_pad
    : detail::padded_sides<"reflection_pad", Spatial, cpu::border::reflect, Options...> {
  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// Repeats the edge of the input: 1 1 | 1 2 3.
template <std::size_t Spatial, class... Options>
struct replication_pad
    : detail::padded_sides<"replication_pad", Spatial, cpu::border::replicate, Options...> {
  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// Adds the opposite end of the input: 2 3 | 1 2 3. Padding is at most the extent.
template <std::size_t Spatial, class... Options>
struct circular_pad
    : detail::padded_sides<"circular_pad", Spatial, cpu::border::circular, Options...> {
  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

template <class... NamedOptions>
using zero_pad1d = zero_pad<1, NamedOptions...>;
template <class... NamedOptions>
using zero_pad2d = zero_pad<2, NamedOptions...>;
template <class... NamedOptions>
using zero_pad3d = zero_pad<3, NamedOptions...>;
template <class... NamedOptions>
using constant_pad1d = constant_pad<1, NamedOptions...>;
template <class... NamedOptions>
using constant_pad2d = constant_pad<2, NamedOptions...>;
template <class... NamedOptions>
using constant_pad3d = constant_pad<3, NamedOptions...>;
template <class... NamedOptions>
using reflection_pad1d = reflection_pad<1, NamedOptions...>;
template <class... NamedOptions>
using reflection_pad2d = reflection_pad<2, NamedOptions...>;
template <class... NamedOptions>
using reflection_pad3d = reflection_pad<3, NamedOptions...>;
template <class... NamedOptions>
using replication_pad1d = replication_pad<1, NamedOptions...>;
template <class... NamedOptions>
using replication_pad2d = replication_pad<2, NamedOptions...>;
template <class... NamedOptions>
using replication_pad3d = replication_pad<3, NamedOptions...>;
template <class... NamedOptions>
using circular_pad1d = circular_pad<1, NamedOptions...>;
template <class... NamedOptions>
using circular_pad2d = circular_pad<2, NamedOptions...>;
template <class... NamedOptions>
using circular_pad3d = circular_pad<3, NamedOptions...>;

}  // namespace ikebana
