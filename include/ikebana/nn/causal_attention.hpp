#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ikebana/core/error.hpp"
#include "ikebana/cpu/attention.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

/// Scaled dot-product attention in which a step of a sequence attends to itself and to the steps
/// before it (Vaswani et al., Attention Is All You Need, 2017): softmax(q k^T / sqrt(E / Heads)) v
/// for each head, PyTorch's scaled_dot_product_attention with is_causal. Inputs q, k, v: [N, L, E],
/// of which head h has the features from h E / Heads on; so has the output, [N, L, E]. No
/// parameters: the projections are linear modules before and after it.
///
/// With kv_cache<N, Length>, in evaluation, a call continues where the previous one ended: keys and
/// values of earlier calls are kept in buffers, and attended to. A sequence may be given in blocks
/// of any length; `reset` of a lane begins a new one. A call throws error, before anything runs, if
/// the sequence would get longer than Length. In training each call is a sequence of its own.
///
/// E is a number, `lazy` or `dynamic`. Options: kv_cache<N, Length> (none). O(N L S E)
/// multiply-adds for S steps attended to, and no matrix of queries by keys; no allocation.
template <dim_t EmbedDim, dim_t Heads, class... Options>
struct causal_attention {
  static_assert(detail::option_set<kv_cache<0, 0>>::template accepts<Options...>,
                "ikebana: causal_attention takes the option kv_cache, once");
  static_assert(Heads > 0, "ikebana: causal_attention needs num_heads > 0");

  static constexpr std::string_view kind = "causal_attention";
  static constexpr bool is_lazy = EmbedDim == lazy;
  static constexpr kept keeps = kept::both;
  using cache = detail::option_or<kv_cache<0, 0>, Options...>;
  static constexpr bool has_cache = cache::batch > 0;
  static_assert(cache::batch >= 0 && cache::length >= 0,
                "ikebana: kv_cache needs a batch and a length, numbers from 0 on");

  [[no_unique_address]] extent<EmbedDim> embed_dim{};

  constexpr inferred infer(const shape_list& in) const {
    if (in.size() != 3)
      return diagnostic{"causal_attention expects {expected} inputs, got {got} (input {input})", 3,
                        static_cast<dim_t>(in.size()), in[0]};
    for (std::size_t j = 0; j < 3; ++j) {
      const shape& one = in[j];
      if (one.rank() != 3)
        return diagnostic{
            "causal_attention expects inputs of {expected} dimensions, got {got} (input {input})",
            3, static_cast<dim_t>(one.rank()), one};
      for (std::size_t i = 0; i < 3; ++i)
        if (!fits(in[0][i], one[i]))
          return diagnostic{
              "causal_attention expects query, key and value of one shape, needs an extent of "
              "{expected}, got {got} (input {input})",
              in[0][i], one[i], one};
    }
    if (!fits(embed_dim.value(), in[0][2]))
      return diagnostic{
          "causal_attention expects embed_dim = {expected}, got {got} (input {input})",
          embed_dim.value(), in[0][2], in[0]};
    if (in[0][2] >= 0 && in[0][2] % Heads != 0)
      return diagnostic{
          "causal_attention expects an embed_dim that num_heads = {expected} divides, got {got} "
          "(input {input})",
          Heads, in[0][2], in[0]};
    if (has_cache && !fits(cache::batch, in[0][0]))
      return diagnostic{
          "causal_attention keeps the states of a batch of {expected}, got {got} (input {input})",
          cache::batch, in[0][0], in[0]};
    return shape_list{in[0]};
  }

  template <shape... In>
  constexpr auto become() const {
    constexpr shape_list in{In...};
    return causal_attention<in[0][2], Heads, Options...>{};
  }
  constexpr void bind(const shape_list& in) { embed_dim.bind(in[0][2]); }
  constexpr void bind_state(std::span<const shape>, std::span<const shape> buffers) {
    if (buffers.size() > 0) embed_dim.bind(buffers[0][2]);
  }

  constexpr std::array<buffer_spec, 3> buffers() const requires(has_cache) {
    const shape each{cache::batch, cache::length, embed_dim.value()};
    return {
        buffer_spec{.name = "keys", .extents = each, .persistent = false},
        buffer_spec{.name = "values", .extents = each, .persistent = false},
        buffer_spec{
            .name = "position", .type = dtype::int64, .follows_model = false, .persistent = false}};
  }
  /// What softmax keeps, scratch, and gradients that nothing asks for.
  constexpr std::array<saved_spec, 5> saved(const shape_list& in) const {
    const dim_t length = in[0][1], width = in[0][2] < 0 ? in[0][2] : in[0][2] / Heads;
    const saved_spec spare{0, in[0]};
    return {saved_spec{0, shape{in[0][0], Heads, 2, length}},
            saved_spec{0, shape{cpu::attention_scratch({1, 1, length, length, width})}}, spare,
            spare, spare};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    return in[0].numel() * in[0][1];
  }
  void describe(description& d) const {
    d.add("embed_dim", embed_dim.value()).add("num_heads", Heads);
    if (has_cache) d.add("kv_cache", std::array<dim_t, 2>{cache::batch, cache::length});
  }

  template <class T>
  void validate([[maybe_unused]] const context<T>& c) const {
    if constexpr (has_cache) {
      const dim_t end = position_of(c) + c.input_shape()[1];
      if (!c.training() && end > cache::length)
        throw_error(error("causal_attention keeps at most " + std::to_string(cache::length) +
                          " steps of a sequence, got " + std::to_string(end)));
    }
  }

  template <class T>
  void forward(const context<T>& c) const {
    const shape& in = c.input_shape();
    if (in.numel() == 0) return;
    const dim_t batch = in[0], length = in[1], e = in[2];
    const cpu::attention_operand<const T> q{c.input(0), e, length * e};
    const cpu::attention_operand<T> out{c.output(), e, length * e};
    if constexpr (has_cache) {
      if (!c.training()) {
        const dim_t position = position_of(c), row = cache::length * e;
        T *const keys = c.buffer(0), *const values = c.buffer(1);
        for (dim_t n = 0; n < batch; ++n) {
          std::copy_n(c.input(1) + n * length * e, length * e, keys + n * row + position * e);
          std::copy_n(c.input(2) + n * length * e, length * e, values + n * row + position * e);
        }
        *c.template buffer<std::int64_t>(2) = position + length;
        const cpu::attention_operand<const T> k{keys, e, row}, v{values, e, row};
        // The kernel's causal mask is for blocks that begin at key 0.
        if (position == 0)
          attend(c, sizes(in, length, length), q, k, v, out, true);
        else
          for (dim_t i = 0; i < length; ++i)
            attend(c, sizes(in, 1, position + i + 1), {q.data + i * e, q.row, q.batch}, k, v,
                   {out.data + i * e, out.row, out.batch}, false);
        return;
      }
    }
    attend(c, sizes(in, length, length), q, {c.input(1), e, length * e},
           {c.input(2), e, length * e}, out, true);
  }

  /// Throws error for a call in evaluation with kv_cache, whose gradients would need those of
  /// earlier calls.
  template <class T>
  void backward(const context<T>& c) const {
    if (has_cache && !c.training())
      throw_error(error("causal_attention with kv_cache has gradients in training only"));
    const shape& in = c.input_shape();
    if (in.numel() == 0) return;
    const dim_t length = in[1], e = in[2], batch = length * e;
    const auto gradient = [&](std::size_t i) -> cpu::attention_operand<T> {
      T* const given = c.input_gradient(i);
      return {given == nullptr ? c.template saved<T>(2 + i) : given, e, batch};
    };
    const cpu::attention_operand<T> dq = gradient(0);
    std::copy_n(c.output_gradient(), in.numel(), dq.data);
    const cpu::attention_masks<T> masks{.causal = true};
    cpu::attention_backward<T>(
        sizes(in, length, length), {c.input(0), e, batch}, {c.input(1), e, batch},
        {c.input(2), e, batch}, masks, {}, cpu::attention_operand<const T>{c.output(), e, batch},
        c.template saved<T>(0), dq, gradient(1), gradient(2), nullptr, c.template saved<T>(1));
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <class T>
  static dim_t position_of(const context<T>& c) {
    return c.training() ? 0 : static_cast<dim_t>(*c.template buffer<std::int64_t>(2));
  }
  static cpu::attention_sizes sizes(const shape& in, dim_t queries, dim_t keys) {
    return {in[0], Heads, queries, keys, in[2] / Heads};
  }
  template <class T>
  static void attend(const context<T>& c, const cpu::attention_sizes& n,
                     cpu::attention_operand<const T> q, cpu::attention_operand<const T> k,
                     cpu::attention_operand<const T> v, cpu::attention_operand<T> out,
                     bool causal) {
    const cpu::attention_masks<T> masks{.causal = causal};
    cpu::attention_forward<T>(n, q, k, v, masks, {}, out,
                              has_cache && !c.training() ? nullptr : c.template saved<T>(0),
                              c.template saved<T>(1));
  }
};

/// A causal_attention whose embed_dim is inferred from the first query.
template <dim_t Heads, class... Options>
using lazy_causal_attention = causal_attention<lazy, Heads, Options...>;

}  // namespace ikebana
