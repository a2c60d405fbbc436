#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "ikebana/core/saturated.hpp"
#include "ikebana/cpu/attention.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/attention_inputs.hpp"
#include "ikebana/nn/detail/attention_run.hpp"
#include "ikebana/nn/dropout.hpp"

namespace ikebana {

/// Multi-head attention (Vaswani et al., Attention Is All You Need, 2017). Each head computes
/// softmax(q k^T / sqrt(embed_dim / num_heads)) v from its projections q, k, v of query, key and
/// value; the heads' outputs are concatenated and projected once more.
///
/// Inputs: one (self-attention), or query, key and value: [L, N, embed_dim], [S, N, kdim], [S, N,
/// vdim], or [N, L, embed_dim] and so on with batch_first<true>, or without N. They are followed by
/// the masks that the options ask for, key_padding_mask before attn_mask:
/// - key_padding_mask<true>: bools [N, S] ([S]), true for keys that are ignored;
/// - attn_mask<mask_kind::boolean>: bools [L, S] or [N num_heads, L, S], true where ignored;
/// - attn_mask<mask_kind::additive>: numbers of the same shapes, added to the scores, with a
///   gradient.
/// With is_causal<true>, query i ignores the keys from i + 1 on, without a mask. A query that
/// ignores every key gets weights of 0 (in PyTorch, NaN).
///
/// With add_bias_kv<true>, the parameters bias_k and bias_v are one more key and value of each
/// sequence, and with add_zero_attn<true> zeros are one more, the last. No mask applies to these.
///
/// Output: shaped as query; with need_weights<true> a second one, [N, L, S] ([L, S]), the mean of
/// the heads' weights, or with average_attn_weights<false> all of them, [N, num_heads, L, S]; S
/// counts the keys that the options add. In training, weights are dropped with probability
/// `dropout`.
///
/// Parameters: in_proj_weight (3 embed_dim, embed_dim), or q_proj_weight, k_proj_weight,
/// v_proj_weight if kdim or vdim differs from embed_dim; in_proj_bias (3 embed_dim);
/// bias_k and bias_v (1, 1, embed_dim) with add_bias_kv<true>; out_proj.weight (embed_dim,
/// embed_dim), out_proj.bias (embed_dim); no biases with bias<false>. EmbedDim is a number, `lazy`
/// or `dynamic`; so are kdim<N> and vdim<N>, which default to EmbedDim. A dynamic kdim or vdim
/// always has separate weights. Further options: bias<bool> (true), batch_first<bool> (false).
///
/// Keeps O(N (L + S) embed_dim) elements for backward, and no matrix of queries by keys, except
/// with need_weights<true>, which keeps N num_heads L S weights. O(N L S embed_dim) multiply-adds
/// besides the projections; no allocation.
template <dim_t EmbedDim, dim_t Heads, class... Options>
struct multihead_attention {
  static_assert(
      detail::option_set<bias<true>, batch_first<false>, kdim<0>, vdim<0>, is_causal<false>,
                         key_padding_mask<false>, attn_mask<mask_kind::none>, need_weights<false>,
                         average_attn_weights<true>, add_bias_kv<false>,
                         add_zero_attn<false>>::template accepts<Options...>,
      "ikebana: multihead_attention takes the options bias, batch_first, kdim, vdim, "
      "is_causal, key_padding_mask, attn_mask, need_weights, average_attn_weights, add_bias_kv and "
      "add_zero_attn, each once");
  static_assert(Heads > 0, "ikebana: multihead_attention needs num_heads > 0");

  static constexpr std::string_view kind = "multihead_attention";
  static constexpr dim_t Key = detail::option_or<kdim<EmbedDim>, Options...>::value;
  static constexpr dim_t Value = detail::option_or<vdim<EmbedDim>, Options...>::value;
  static constexpr bool is_lazy = EmbedDim == lazy || Key == lazy || Value == lazy;
  static constexpr bool is_random = true;
  static constexpr kept keeps = kept::input;
  static constexpr bool has_bias = detail::option_or<bias<true>, Options...>::value;
  static constexpr bool has_weights = detail::option_or<need_weights<false>, Options...>::value;
  static constexpr std::size_t outputs = has_weights ? 2 : 1;
  static constexpr bool has_kdim = detail::times_given<detail::kdim_option, Options...> > 0;
  static constexpr bool has_vdim = detail::times_given<detail::vdim_option, Options...> > 0;
  static constexpr mask_kind mask =
      detail::option_or<attn_mask<mask_kind::none>, Options...>::value;
  /// Whether a single matrix holds the weights of query, key and value.
  static constexpr bool is_packed =
      !(has_kdim || has_vdim) || (EmbedDim >= 0 && Key == EmbedDim && Value == EmbedDim);

  /// The options as values.
  static constexpr detail::attention_layout layout{
      Heads,
      has_bias,
      is_packed,
      has_weights,
      has_kdim,
      has_vdim,
      detail::option_or<batch_first<false>, Options...>::value,
      detail::option_or<is_causal<false>, Options...>::value,
      detail::option_or<key_padding_mask<false>, Options...>::value,
      mask != mask_kind::none,
      mask == mask_kind::additive,
      detail::option_or<average_attn_weights<true>, Options...>::value,
      detail::option_or<add_bias_kv<false>, Options...>::value,
      detail::option_or<add_zero_attn<false>, Options...>::value};
  static_assert(layout.averaged || has_weights,
                "ikebana: average_attn_weights<false> of multihead_attention is for "
                "need_weights<true>");
  static constexpr bool adds_keys = layout.more_keys() > 0;

  /// Names of query, key, value and the masks. With a single input, masks have no names.
  static constexpr auto input_names = [] {
    std::array<std::string_view, 3 + layout.mask_count()> names{"query", "key", "value"};
    if (layout.padding) names[3] = "key_padding_mask";
    if (layout.mask) names[2 + layout.mask_count()] = "attn_mask";
    return names;
  }();

  probability dropout = 0;
  [[no_unique_address]] extent<EmbedDim> embed_dim{};
  [[no_unique_address]] extent<Key> key_dim{};
  [[no_unique_address]] extent<Value> value_dim{};

  static constexpr element_kind input_kind(std::size_t i, std::size_t count) {
    const std::size_t numbers = layout.numbers(count);
    if (i < numbers) return element_kind::real;
    if (layout.padding && i == numbers) return element_kind::boolean;
    return layout.additive ? element_kind::real : element_kind::boolean;
  }

  constexpr inferred infer(const shape_list& in) const {
    const diagnostic wrong =
        layout.check(in, embed_dim.value(), key_dim.value(), value_dim.value());
    if (!wrong.ok()) return wrong;
    const detail::attention_extents n(layout, in);
    shape_list out{in[0]};
    if (EmbedDim >= 0) out[0] = in[0].with(in[0].rank() - 1, EmbedDim);
    if constexpr (has_weights) {
      shape weights;
      if (n.batched) weights.push_back(n.batch);
      if (!layout.averaged) weights.push_back(Heads);
      weights.push_back(n.queries);
      weights.push_back(detail::plus(n.keys, layout.more_keys()));
      out.push_back(weights);
    }
    return out;
  }

  template <shape... In>
  constexpr auto become() const {
    constexpr shape_list in{In...};
    constexpr bool three = layout.numbers(in.size()) == 3;
    constexpr dim_t e = EmbedDim == lazy ? in[0].back() : EmbedDim;
    constexpr dim_t k = Key == lazy ? in[three ? 1 : 0].back() : Key;
    constexpr dim_t v = Value == lazy ? in[three ? 2 : 0].back() : Value;
    multihead_attention<e, Heads, detail::replaced<detail::replaced<Options, kdim<k>>, vdim<v>>...>
        m;
    m.dropout = dropout;
    return m;
  }

  constexpr void bind(const shape_list& in) {
    const bool three = layout.numbers(in.size()) == 3;
    embed_dim.bind(in[0].back());
    key_dim.bind(in[three ? 1 : 0].back());
    value_dim.bind(in[three ? 2 : 0].back());
  }
  constexpr void bind_state(std::span<const shape> parameters, std::span<const shape>) {
    embed_dim.bind(parameters[0][1]);
    key_dim.bind(parameters[is_packed ? 0 : 1][1]);
    value_dim.bind(parameters[is_packed ? 0 : 2][1]);
  }

  constexpr auto parameters() const {
    const dim_t e = embed_dim.value();
    std::array<parameter_spec, layout.out_weight() + (has_bias ? 2 : 1)> all;
    if constexpr (is_packed) {
      all[0] = weight("in_proj_weight", detail::times(3, e), e);
    } else {
      all[0] = weight("q_proj_weight", e, e);
      all[1] = weight("k_proj_weight", e, key_dim.value());
      all[2] = weight("v_proj_weight", e, value_dim.value());
    }
    if constexpr (has_bias)
      all[layout.in_bias()] = {"in_proj_bias", shape{detail::times(3, e)},
                               initializer::constant(0)};
    if constexpr (layout.bias_kv) {
      const auto normal = initializer::xavier_normal(e, e);
      all[layout.key_bias()] = {"bias_k", shape{1, 1, e}, normal};
      all[layout.key_bias() + 1] = {"bias_v", shape{1, 1, e}, normal};
    }
    all[layout.out_weight()] = {"out_proj.weight", shape{e, e}, initializer::kaiming_uniform(e)};
    if constexpr (has_bias)
      all[layout.out_bias()] = {"out_proj.bias", shape{e}, initializer::constant(0)};
    return all;
  }

  /// The projections of query, key and value, what softmax keeps (maximum and sum of each row, or
  /// the weights), the heads' outputs, the gradients of the projections, and scratch. With more
  /// keys than those of the sequence, also all keys and values, their gradients, and masks of all
  /// keys.
  constexpr auto saved(const shape_list& in) const {
    const detail::attention_extents n(layout, in);
    const dim_t e = in[0].back();
    const auto rows = [&](std::size_t i, dim_t columns) {
      return saved_spec{0, in[i].with(in[i].rank() - 1, columns)};
    };
    const saved_spec none{0, shape{0}};
    const saved_spec q = rows(0, n.self ? detail::times(3, e) : e);
    const saved_spec k = n.self ? none : rows(1, e), v = n.self ? none : rows(2, e);
    const dim_t keys = detail::plus(n.keys, layout.more_keys());
    saved_spec softmax{0, shape{n.batch, Heads, 2, n.queries}};
    saved_spec scratch{0, shape{cpu::attention_scratch({1, 1, n.queries, keys, e / Heads})}};
    if (has_weights) {
      softmax.extents = shape{n.batch, Heads, n.queries, keys};
      scratch.extents = shape{2, n.queries, keys};
    }
    const std::array<saved_spec, 9> all{q, k, v, softmax, rows(0, e), q, k, v, scratch};
    if constexpr (adds_keys) {
      const saved_spec each{0, shape{n.batch, keys, e}};
      saved_spec padded{none}, masked{none}, gradient{none};
      if (layout.padding) padded = {sizeof(bool), shape{n.batch, keys}};
      if (layout.mask || layout.causal) {
        masked.extents = shape{n.queries, keys};
        if (layout.mask && in[in.size() - 1].rank() == 3)
          masked.extents = shape{detail::times(Heads, n.batch), n.queries, keys};
        if (layout.additive)
          gradient = masked;
        else
          masked.element_size = sizeof(bool);
      }
      return std::array<saved_spec, 16>{q,    k,      v,       softmax, all[4], q,
                                        k,    v,      scratch, each,    each,   each,
                                        each, padded, masked,  gradient};
    } else {
      return all;
    }
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    const detail::attention_extents n(layout, in);
    const saturated e = in[0].back(), k = n.self ? e : in[1].back(), v = n.self ? e : in[2].back(),
                    queries = n.queries, keys = n.keys;
    return ((2 * queries * e * e + keys * e * (k + v) + 2 * queries * keys * e) * n.batch).value;
  }

  void describe(description& d) const {
    d.add("embed_dim", embed_dim.value()).add("num_heads", Heads);
    if (has_kdim) d.add("kdim", key_dim.value());
    if (has_vdim) d.add("vdim", value_dim.value());
    d.add("dropout", static_cast<double>(dropout)).add("bias", has_bias);
    d.add("batch_first", layout.batch_first);
    if (layout.causal) d.add("is_causal", true);
    if (layout.padding) d.add("key_padding_mask", true);
    if (layout.mask) d.add("attn_mask", std::string_view{layout.additive ? "additive" : "boolean"});
    if (has_weights) d.add("need_weights", true);
    if (!layout.averaged) d.add("average_attn_weights", false);
    if (layout.bias_kv) d.add("add_bias_kv", true);
    if (layout.zero_attn) d.add("add_zero_attn", true);
  }

  template <class Context>
  void forward(const Context& c) const {
    detail::attention_run<has_weights, adds_keys, Context>(layout, c, dropout).forward();
  }

  template <class Context>
  void backward(const Context& c) const {
    detail::attention_run<has_weights, adds_keys, Context>(layout, c, dropout).backward();
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static constexpr parameter_spec weight(const char* name, dim_t out, dim_t in) {
    return {name, shape{out, in}, initializer::xavier_uniform(in, out)};
  }
};

/// A multihead_attention whose embed_dim is inferred from the first query.
template <dim_t Heads, class... Options>
using lazy_multihead_attention = multihead_attention<lazy, Heads, Options...>;

}  // namespace ikebana
