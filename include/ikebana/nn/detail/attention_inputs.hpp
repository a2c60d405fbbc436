#pragma once

#include <cstddef>
#include <type_traits>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/shape_list.hpp"

namespace ikebana::detail {

/// New if it is an option of the same kind as Option, else Option.
template <class Option, class New>
using replaced = std::conditional_t<is_option_of<Option, typename New::option>, New, Option>;

/// a + b, where a may be unknown until run time (negative).
constexpr dim_t plus(dim_t a, dim_t b) { return a < 0 ? a : a + b; }

/// a * b, where b may be unknown until run time (negative).
constexpr dim_t times(dim_t a, dim_t b) { return b < 0 ? b : extent_product(a, b); }

/// The options of multihead_attention as values, so that code is not instantiated for each set of
/// options. Inputs are query (or query, key and value), then masks.
struct attention_layout {
  dim_t heads = 1;
  bool bias = true, packed = true, need_weights = false;
  bool own_key = false, own_value = false;
  bool batch_first = false, causal = false, padding = false, mask = false, additive = false;
  bool averaged = true, bias_kv = false, zero_attn = false;

  /// The number of keys and values that follow those of a sequence.
  constexpr dim_t more_keys() const { return dim_t{bias_kv} + dim_t{zero_attn}; }
  constexpr std::size_t mask_count() const { return std::size_t{padding} + std::size_t{mask}; }
  /// The number of inputs before the masks, of `count` inputs.
  constexpr std::size_t numbers(std::size_t count) const {
    return count < mask_count() ? 0 : count - mask_count();
  }

  // Indices of the parameters.
  constexpr std::size_t in_bias() const { return packed ? 1 : 3; }
  constexpr std::size_t key_bias() const { return in_bias() + std::size_t{bias}; }
  constexpr std::size_t out_weight() const { return key_bias() + (bias_kv ? 2 : 0); }
  constexpr std::size_t out_bias() const { return out_weight() + 1; }

  constexpr diagnostic check(const shape_list& in, dim_t embed, dim_t key, dim_t value) const;
};

/// Extents of one call.
struct attention_extents {
  std::size_t inputs;
  bool self, batched;
  dim_t batch, queries, keys;  ///< 1 if the input is unbatched.

  constexpr attention_extents(const attention_layout& layout, const shape_list& in)
      : attention_extents(layout, layout.numbers(in.size()), in[0],
                          layout.numbers(in.size()) == 3 ? in[1] : in[0]) {}
  constexpr attention_extents(const attention_layout& layout, std::size_t numbers,
                              const shape& query, const shape& key)
      : inputs{numbers},
        self{numbers == 1},
        batched{query.rank() == 3},
        batch{batched ? query[layout.batch_first ? 0 : 1] : 1},
        queries{query[batched && layout.batch_first ? 1 : 0]},
        keys{key[batched && layout.batch_first ? 1 : 0]} {}
};

constexpr diagnostic attention_layout::check(const shape_list& in, dim_t embed, dim_t key,
                                             dim_t value) const {
  const std::size_t n = numbers(in.size());
  if (n != 1 && n != 3)
    return {"multihead_attention expects 1 or 3 inputs and {expected} masks, got {got} in all",
            static_cast<dim_t>(mask_count()), static_cast<dim_t>(in.size())};
  const shape &q = in[0], &k = in[n == 3 ? 1 : 0], &v = in[n == 3 ? 2 : 0];
  for (std::size_t i = 0; i < n; ++i)
    if (in[i].rank() != 2 && in[i].rank() != 3)
      return {"multihead_attention expects inputs of 2 or 3 dimensions, got {got} (input {input})",
              0, static_cast<dim_t>(in[i].rank()), in[i]};
  if (!fits(embed, q.back()))
    return {"multihead_attention expects embed_dim = {expected}, got {got} (input {input})", embed,
            q.back(), q};
  if (q.back() >= 0 && q.back() % heads != 0)
    return {
        "multihead_attention expects embed_dim to be a multiple of num_heads = {expected}, got "
        "{got} (input {input})",
        heads, q.back(), q};
  if (embed < 0) embed = q.back();
  if (!own_key) key = embed;
  if (!own_value) value = embed;
  if (!fits(key, k.back()))
    return {"multihead_attention expects kdim = {expected}, got {got} (input {input})", key,
            k.back(), k};
  if (!fits(value, v.back()))
    return {"multihead_attention expects vdim = {expected}, got {got} (input {input})", value,
            v.back(), v};
  if (!compatible(k.with(k.rank() - 1, 0), v.with(v.rank() - 1, 0)))
    return {"multihead_attention expects a value for each key, got keys {input} and values {other}",
            0, 0, k, v};
  const attention_extents e(*this, in);
  if (k.rank() != q.rank() || (e.batched && !fits(e.batch, k[batch_first ? 0 : 1])))
    return {"multihead_attention expects query and key of one batch, got {input} and {other}", 0, 0,
            q, k};
  if (padding) {
    const shape expected = e.batched ? shape{e.batch, e.keys} : shape{e.keys};
    if (!compatible(expected, in[n]))
      return {"multihead_attention expects a key_padding_mask {input}, got {other}", 0, 0, expected,
              in[n]};
  }
  if (mask) {
    const shape& m = in[in.size() - 1];
    const shape expected =
        m.rank() == 3 ? shape{times(heads, e.batch), e.queries, e.keys} : shape{e.queries, e.keys};
    if (!compatible(expected, m))
      return {"multihead_attention expects an attn_mask {input}, got {other}", 0, 0, expected, m};
  }
  return {};
}

}  // namespace ikebana::detail
