#pragma once

#include <array>
#include <boost/hana/at.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/module/arithmetic.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/multihead_attention.hpp"
#include "ikebana/nn/transformer_encoder_layer.hpp"

namespace ikebana {

namespace detail {
struct memory_key_padding_mask_option;
struct memory_mask_option;

/// Which masks a decoder has, in the order of its inputs: of the target's elements and of the
/// memory's, and of padding of either.
struct decoder_masks {
  bool target = false, memory = false, target_padding = false, memory_padding = false;

  constexpr int count() const {
    return int{target} + int{memory} + int{target_padding} + int{memory_padding};
  }
};

/// Children in the order in which PyTorch registers them: self_attn, multihead_attn, linear1,
/// dropout, linear2, norm1, norm2, norm3, dropout1, dropout2, dropout3, activation, add.
template <bool NormFirst, decoder_masks Masks, class... Children>
struct decoder_layer {
  static constexpr std::string_view kind = "transformer_decoder_layer";
  static constexpr decoder_masks masks = Masks;
  boost::hana::tuple<Children...> children{};

  constexpr decoder_layer() = default;
  constexpr explicit decoder_layer(boost::hana::tuple<Children...> c) : children{std::move(c)} {}

  static constexpr auto wiring() {
    enum {
      self_attn,
      multihead_attn,
      linear1,
      dropout,
      linear2,
      norm1,
      norm2,
      norm3,
      dropout1,
      dropout2,
      dropout3,
      activation,
      sum
    };
    wiring_table<15> w;
    w.inputs = 2 + Masks.count();
    // The composition takes masks of elements first, as PyTorch's decoder does; attention takes
    // key_padding_mask first.
    const int memory_mask = 2 + int{Masks.target}, padding = memory_mask + int{Masks.memory},
              memory_padding = padding + int{Masks.target_padding};
    int steps = 0;
    const auto step = [&](int child, int a, int b = -1) {
      auto& s = w.steps[steps];
      s.child = child;
      s.inputs[0] = a;
      s.inputs[1] = b < 0 ? 0 : b;
      s.input_count = b < 0 ? 1 : 2;
      return w.inputs + steps++;
    };
    const auto attend = [&](int x) {
      const int y = step(self_attn, x);
      auto& s = w.steps[steps - 1];
      if (Masks.target_padding) s.inputs[s.input_count++] = padding;
      if (Masks.target) s.inputs[s.input_count++] = 2;
      return step(dropout1, y);
    };
    const auto attend_memory = [&](int x) {
      const int y = step(multihead_attn, x, 1);
      auto& s = w.steps[steps - 1];
      s.inputs[s.input_count++] = 1;
      if (Masks.memory_padding) s.inputs[s.input_count++] = memory_padding;
      if (Masks.memory) s.inputs[s.input_count++] = memory_mask;
      return step(dropout2, y);
    };
    const auto feed_forward = [&](int x, int like) {
      constexpr bool two = takes_like<nth<4, Children...>>;
      const int hidden = step(dropout, step(activation, step(linear1, x)));
      return step(dropout3, step(linear2, hidden, two ? like : -1));
    };
    if (NormFirst) {
      const int x = step(sum, 0, attend(step(norm1, 0)));
      const int z = step(sum, x, attend_memory(step(norm2, x)));
      w.outputs[0] = step(sum, z, feed_forward(step(norm3, z), z));
    } else {
      const int x = step(norm1, step(sum, 0, attend(0)));
      const int z = step(norm2, step(sum, x, attend_memory(x)));
      w.outputs[0] = step(norm3, step(sum, z, feed_forward(z, z)));
    }
    return w;
  }

  template <class... C>
  static constexpr auto rebind(C... c) {
    return decoder_layer<NormFirst, Masks, C...>(boost::hana::tuple<C...>{std::move(c)...});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace detail

/// Whether there is an input of bools that marks the ignored elements of each sample's memory.
template <bool B>
struct memory_key_padding_mask {
  using option = detail::memory_key_padding_mask_option;
  static constexpr bool value = B;
};

/// A mask of which element of the target may attend to which of the memory, see attn_mask.
template <mask_kind Kind>
struct memory_mask {
  using option = detail::memory_mask_option;
  static constexpr mask_kind value = Kind;
};

namespace detail {

template <dim_t D, dim_t Heads, dim_t Feedforward, class... Options>
struct make_decoder_layer {
  using biased = option_or<bias<true>, Options...>;
  using batched = option_or<batch_first<false>, Options...>;
  using padded = option_or<key_padding_mask<false>, Options...>;
  using masked = option_or<attn_mask<mask_kind::none>, Options...>;
  static constexpr mask_kind memory = option_or<memory_mask<mask_kind::none>, Options...>::value;
  static constexpr decoder_masks masks{
      masked::value != mask_kind::none, memory != mask_kind::none, padded::value,
      option_or<memory_key_padding_mask<false>, Options...>::value};
  using self_attn = multihead_attention<D, Heads, biased, batched,
                                        option_or<is_causal<false>, Options...>, padded, masked>;
  using multihead_attn =
      multihead_attention<D, Heads, biased, batched, key_padding_mask<masks.memory_padding>,
                          attn_mask<memory>>;
  using linear2 =
      typename std::conditional_t<(D >= 0),
                                  std::type_identity<linear<Feedforward, (D >= 0 ? D : 0), biased>>,
                                  std::type_identity<linear_like<Feedforward, D, biased>>>::type;
  using norm = layer_norm<shape{D}, biased>;
  using type = decoder_layer<
      option_or<norm_first<false>, Options...>::value, masks, named_child<"self_attn", self_attn>,
      named_child<"multihead_attn", multihead_attn>,
      named_child<"linear1", linear<D, Feedforward, biased>>, named_child<"dropout", dropout>,
      named_child<"linear2", linear2>, named_child<"norm1", norm>, named_child<"norm2", norm>,
      named_child<"norm3", norm>, named_child<"dropout1", dropout>,
      named_child<"dropout2", dropout>, named_child<"dropout3", dropout>,
      named_child<"activation", typename option_or<activation<relu>, Options...>::type>,
      named_child<"add", add>>;
};

}  // namespace detail

/// A transformer decoder layer (Vaswani et al., Attention Is All You Need, 2017): x +
/// self_attention(x), then x + attention(x, memory, memory), then x + linear2(activation(linear1(
/// x))). Each sum is normalised or, with norm_first<true>, the input of each sublayer instead.
/// Dropout is applied to the output of each sublayer and to the inner layer.
///
/// Inputs: the target [L, N, d], [N, L, d] with batch_first<true>, or [L, d]; the memory [S, N, d],
/// ..., an encoder's output; then the masks that the options ask for, in this order: attn_mask (of
/// the target, [L, L]), memory_mask ([L, S]), key_padding_mask (of the target, bools [N, L]),
/// memory_key_padding_mask ([N, S]); see multihead_attention. Output: shaped as the target. D is a
/// number, `lazy` or `dynamic`; Feedforward is the width of the inner layer. Options:
/// is_causal<bool> (false): whether an element of the target attends to those up to itself alone,
/// as a decoder's usually does; activation<Module> (relu), norm_first<bool> (false),
/// batch_first<bool> (false), bias<bool> (true), attn_mask<kind>, memory_mask<kind>,
/// key_padding_mask<bool> and memory_key_padding_mask<bool> (false). Constructed from
/// transformer_settings.
///
/// A composition with the children self_attn, multihead_attn, linear1, linear2, norm1, norm2 and
/// norm3, so that its parameters have PyTorch's names.
template <dim_t D, dim_t Heads, dim_t Feedforward, class... Options>
struct transformer_decoder_layer
    : detail::make_decoder_layer<D, Heads, Feedforward, Options...>::type {
  static_assert(
      detail::option_set<activation<relu>, norm_first<false>, batch_first<false>, bias<true>,
                         is_causal<false>, attn_mask<mask_kind::none>, memory_mask<mask_kind::none>,
                         key_padding_mask<false>,
                         memory_key_padding_mask<false>>::template accepts<Options...>,
      "ikebana: transformer_decoder_layer takes the options activation, norm_first, batch_first, "
      "bias, is_causal, attn_mask, memory_mask, key_padding_mask and memory_key_padding_mask, each "
      "once");
  using base = typename detail::make_decoder_layer<D, Heads, Feedforward, Options...>::type;

  constexpr transformer_decoder_layer() : transformer_decoder_layer(transformer_settings{}) {}
  constexpr transformer_decoder_layer(const transformer_settings& s) {
    child<0>().dropout = child<1>().dropout = s.dropout;
    child<3>().p = child<8>().p = child<9>().p = child<10>().p = s.dropout;
    child<5>().eps = child<6>().eps = child<7>().eps = s.layer_norm_eps;
  }
  constexpr explicit transformer_decoder_layer(base b) : base{std::move(b)} {}

  static constexpr auto input_names = [] {
    std::array<std::string_view, static_cast<std::size_t>(base::wiring().inputs)> names{"tgt",
                                                                                        "memory"};
    std::size_t n = 2;
    if (base::masks.target) names[n++] = "tgt_mask";
    if (base::masks.memory) names[n++] = "memory_mask";
    if (base::masks.target_padding) names[n++] = "tgt_key_padding_mask";
    if (base::masks.memory_padding) names[n++] = "memory_key_padding_mask";
    return names;
  }();

  /// With children other than those of such a layer, the result is the same composition under a
  /// generic type.
  template <class First, class... C>
  static constexpr auto rebind(First first, C... c) {
    using same = transformer_decoder_layer<detail::width_of<First>, Heads, Feedforward, Options...>;
    auto made = base::rebind(std::move(first), std::move(c)...);
    if constexpr (std::is_same_v<decltype(made), typename same::base>)
      return same(std::move(made));
    else
      return made;
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <std::size_t I>
  constexpr auto& child() {
    return detail::module_of(boost::hana::at_c<I>(this->children));
  }
};

/// A transformer_decoder_layer whose width is inferred from the first input.
template <dim_t Heads, dim_t Feedforward, class... Options>
using lazy_transformer_decoder_layer =
    transformer_decoder_layer<lazy, Heads, Feedforward, Options...>;

}  // namespace ikebana
