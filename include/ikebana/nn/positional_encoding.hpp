#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

namespace detail {

/// Extents of a sequence of vectors: [length, features], with a batch before or after the length or
/// none.
struct sequence_extents {
  dim_t batch = 1, length, features;
  bool length_first = false;

  constexpr sequence_extents(const shape& s, bool batch_first)
      : batch{s.rank() == 2 ? 1 : s[batch_first ? 0 : 1]},
        length{s[s.rank() == 3 && batch_first ? 1 : 0]},
        features{s.back()},
        length_first{!batch_first} {}
};

/// y = x + table, where row l of the table is added to element l of each sequence.
template <class T>
void add_positions(const sequence_extents& n, const T* x, const T* table, T* y) {
  const dim_t blocks = n.length_first ? n.length : 1;
  const dim_t block = n.length_first ? n.features : n.length * n.features;
  for (dim_t l = 0; l < blocks; ++l, table += block)
    for (dim_t b = 0; b < n.batch; ++b, x += block, y += block) cpu::add<T>(block, x, table, y);
}

/// Fills the (length, features) table of sines and cosines.
template <class T>
void fill_sinusoids(dim_t length, dim_t features, T* table) {
  // Rotating by the angle of one position costs four products instead of two calls; an exact
  // restart every 32 positions keeps the rounding error below 1e-14.
  constexpr dim_t turns = 32;
  for (dim_t j = 0; j < features; j += 2) {
    const double angle = std::pow(10000., -static_cast<double>(j) / static_cast<double>(features));
    const double turn_s = std::sin(angle), turn_c = std::cos(angle);
    double s = 0, c = 1;
    for (dim_t l = 0; l < length; ++l) {
      if (l % turns == 0) {
        s = std::sin(static_cast<double>(l) * angle);
        c = std::cos(static_cast<double>(l) * angle);
      }
      table[l * features + j] = static_cast<T>(s);
      if (j + 1 < features) table[l * features + j + 1] = static_cast<T>(c);
      const double next = s * turn_c + c * turn_s;
      c = c * turn_c - s * turn_s;
      s = next;
    }
  }
}

}  // namespace detail

/// y = x + p with p[l, 2 i] = sin(l / 10000^(2 i / d)) and p[l, 2 i + 1] = cos(l / 10000^(2 i /
/// d)), for sequences of any length l and width d: [L, N, d], [N, L, d] with batch_first<true>, or
/// [L, d] (Vaswani et al., Attention Is All You Need, 2017). No parameters. Options:
/// batch_first<bool> (false). O(elements); no allocation.
template <class... Options>
struct sinusoidal_encoding {
  static_assert(detail::option_set<batch_first<false>>::template accepts<Options...>,
                "ikebana: sinusoidal_encoding takes the option batch_first, once");

  static constexpr std::string_view kind = "sinusoidal_encoding";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_batch_first = detail::option_or<batch_first<false>, Options...>::value;

  constexpr inferred infer(const shape& in) const {
    if (in.rank() != 2 && in.rank() != 3)
      return diagnostic{
          "sinusoidal_encoding expects an input of 2 or 3 dimensions, got {got} (input {input})", 0,
          static_cast<dim_t>(in.rank()), in};
    return in;
  }

  /// The table of sines and cosines.
  constexpr std::array<saved_spec, 1> saved(const shape_list& in) const {
    const detail::sequence_extents n(in[0], is_batch_first);
    return {saved_spec{0, shape{n.length, n.features}}};
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  void describe(description& d) const { d.add("batch_first", is_batch_first); }

  template <class T>
  void forward(const context<T>& c) const {
    const detail::sequence_extents n(c.input_shape(), is_batch_first);
    T* table = c.template saved<T>(0);
    detail::fill_sinusoids(n.length, n.features, table);
    detail::add_positions<T>(n, c.input(), table, c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    const dim_t n = c.output_shape().numel();
    if (n > 0 && c.input_gradient() != nullptr)
      std::memcpy(c.input_gradient(), c.output_gradient(), static_cast<std::size_t>(n) * sizeof(T));
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = x + weight[l] for element l of each sequence: [L, N, features], [N, L, features] with
/// batch_first<true>, or [L, features], with L at most MaxLength.
/// Parameter: weight (max_length, features), initialised from a normal distribution with mean 0 and
/// standard deviation 0.02 (Devlin et al., BERT, 2019). Features is a number, `lazy` or `dynamic`.
/// Options: batch_first<bool> (false). O(elements); no allocation.
template <dim_t MaxLength, dim_t Features, class... Options>
struct learned_positions {
  static_assert(detail::option_set<batch_first<false>>::template accepts<Options...>,
                "ikebana: learned_positions takes the option batch_first, once");
  static_assert(MaxLength >= 0, "ikebana: learned_positions needs max_length, a number");

  static constexpr std::string_view kind = "learned_positions";
  static constexpr bool is_lazy = Features == lazy;
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_batch_first = detail::option_or<batch_first<false>, Options...>::value;

  [[no_unique_address]] extent<Features> features{};

  constexpr inferred infer(const shape& in) const {
    if (in.rank() != 2 && in.rank() != 3)
      return diagnostic{
          "learned_positions expects an input of 2 or 3 dimensions, got {got} (input {input})", 0,
          static_cast<dim_t>(in.rank()), in};
    if (!fits(features.value(), in.back()))
      return diagnostic{
          "learned_positions expects features = {expected}, got {got} (input {input})",
          features.value(), in.back(), in};
    const dim_t length = detail::sequence_extents(in, is_batch_first).length;
    if (length > MaxLength)
      return diagnostic{
          "learned_positions expects at most {expected} positions, got {got} (input {input})",
          MaxLength, length, in};
    return Features >= 0 ? in.with(in.rank() - 1, Features) : in;
  }

  template <shape Input>
  constexpr auto become() const {
    return learned_positions<MaxLength, Input.back(), Options...>{};
  }

  constexpr void bind(const shape_list& in) { features.bind(in[0].back()); }
  constexpr void bind_state(std::span<const shape> parameters, std::span<const shape>) {
    features.bind(parameters[0][1]);
  }

  constexpr std::array<parameter_spec, 1> parameters() const {
    return {
        parameter_spec{"weight", shape{MaxLength, features.value()}, initializer::normal(0, 0.02)}};
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  void describe(description& d) const {
    d.add("max_length", MaxLength).add("features", features.value());
    d.add("batch_first", is_batch_first);
  }

  template <class T>
  void forward(const context<T>& c) const {
    const detail::sequence_extents n(c.input_shape(), is_batch_first);
    detail::add_positions<T>(n, c.input(), c.parameter(0), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    const detail::sequence_extents n(c.input_shape(), is_batch_first);
    const dim_t size = c.output_shape().numel(), used = n.length * n.features;
    const dim_t block = n.length_first ? n.features : used;
    const T* dy = c.output_gradient();
    T* dw = c.parameter_gradient(0);
    for (dim_t at = 0; at < used; at += block, dy += n.batch * block)
      cpu::column_sums<T>(n.batch, block, dy, block, dw + at, c.accumulate());
    if (!c.accumulate()) cpu::fill<T>(MaxLength * n.features - used, dw + used, T{0});
    if (size > 0 && c.input_gradient() != nullptr)
      std::memcpy(c.input_gradient(), c.output_gradient(),
                  static_cast<std::size_t>(size) * sizeof(T));
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// A learned_positions whose features are inferred from the first input.
template <dim_t MaxLength, class... Options>
using lazy_learned_positions = learned_positions<MaxLength, lazy, Options...>;

}  // namespace ikebana
