#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

/// Rotary positions (Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding,
/// 2021): at step l of a sequence, features 2 i and 2 i + 1 of each head are rotated by the angle
/// l base^(-2 i / d), where d, even, is the features of a head. For queries and keys, [N, L, E]
/// with E = Heads d; products of the two then depend on the distance of their steps. No parameters.
///
/// With stateful<N>, in evaluation, a call continues at the step where the previous one ended; in
/// training each call begins at step 0. Options: stateful<N> (0). O(elements); no allocation.
template <dim_t Heads, class... Options>
struct rotary_positions {
  static_assert(detail::option_set<stateful<0>>::template accepts<Options...>,
                "ikebana: rotary_positions takes the option stateful, once");
  static_assert(Heads > 0, "ikebana: rotary_positions needs num_heads > 0");

  static constexpr std::string_view kind = "rotary_positions";
  static constexpr kept keeps = kept::nothing;
  static constexpr dim_t state_batch = detail::option_or<stateful<0>, Options...>::value;
  static_assert(state_batch >= 0, "ikebana: stateful<N> is how many sequences, or 0");

  double base = 10000;

  constexpr inferred infer(const shape& in) const {
    if (in.rank() != 3)
      return diagnostic{
          "rotary_positions expects an input of {expected} dimensions, got {got} (input {input})",
          3, static_cast<dim_t>(in.rank()), in};
    if (in[2] >= 0 && in[2] % (2 * Heads) != 0)
      return diagnostic{
          "rotary_positions expects a number of features that {expected} (2 num_heads) divides, "
          "got {got} (input {input})",
          2 * Heads, in[2], in};
    if (state_batch > 0 && !fits(state_batch, in[0]))
      return diagnostic{
          "rotary_positions keeps the states of a batch of {expected}, got {got} (input {input})",
          state_batch, in[0], in};
    return in;
  }

  constexpr std::array<buffer_spec, 1> buffers() const requires(state_batch > 0) {
    return {buffer_spec{
        .name = "position", .type = dtype::int64, .follows_model = false, .persistent = false}};
  }
  /// Cosines and sines of the angles of each step.
  constexpr std::array<saved_spec, 1> saved(const shape_list& in) const {
    return {saved_spec{0, shape{in[0][1], in[0][2] < 0 ? in[0][2] : in[0][2] / Heads}}};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    return 2 * in[0].numel();
  }
  void describe(description& d) const {
    d.add("num_heads", Heads).add("base", base);
    if (state_batch > 0) d.add("stateful", state_batch);
  }

  template <class T>
  void forward(const context<T>& c) const {
    const shape& in = c.input_shape();
    dim_t first = 0;
    if constexpr (state_batch > 0) {
      if (!c.training()) {
        std::int64_t& position = *c.template buffer<std::int64_t>(0);
        first = static_cast<dim_t>(position);
        position += in[1];
      }
    }
    T* const table = c.template saved<T>(0);
    const dim_t d = in[2] / Heads;
    for (dim_t j = 0; j < d; j += 2) {
      const double angle = std::pow(base, -static_cast<double>(j) / static_cast<double>(d));
      for (dim_t l = 0; l < in[1]; ++l) {
        const double turn = static_cast<double>(first + l) * angle;
        table[l * d + j] = static_cast<T>(std::cos(turn));
        table[l * d + j + 1] = static_cast<T>(std::sin(turn));
      }
    }
    rotate<T>(in, table, T{1}, c.input(), c.output());
  }

  /// By the opposite angles.
  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() != nullptr)
      rotate<T>(c.input_shape(), c.template saved<T>(0), T{-1}, c.output_gradient(),
                c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <class T>
  static void rotate(const shape& in, const T* table, T sign, const T* x, T* y) {
    const dim_t d = in[2] / Heads;
    for (dim_t n = 0; n < in[0]; ++n)
      for (dim_t l = 0; l < in[1]; ++l)
        for (dim_t h = 0; h < Heads; ++h, x += d, y += d)
          for (dim_t j = 0; j < d; j += 2) {
            const T cosine = table[l * d + j], sine = sign * table[l * d + j + 1];
            const T even = x[j], odd = x[j + 1];
            y[j] = even * cosine - odd * sine;
            y[j + 1] = odd * cosine + even * sine;
          }
  }
};

}  // namespace ikebana
