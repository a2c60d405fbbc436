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
#include "ikebana/nn/detail/linear_like.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/multihead_attention.hpp"

namespace ikebana {

/// Run-time settings of an encoder layer, with PyTorch's defaults.
struct transformer_settings {
  probability dropout = 0.1;
  double layer_norm_eps = 1e-5;
};

namespace detail {

/// Whether Child is a linear module whose out_features come from a second input.
template <class Child>
inline constexpr bool takes_like = requires {
  unwrap_named<Child>::type::out_features_from_second_input;
};

/// Children in the order in which PyTorch registers them: self_attn, linear1, dropout, linear2,
/// norm1, norm2, dropout1, dropout2, activation, add.
template <bool NormFirst, bool Mask, bool Padding, class... Children>
struct encoder_layer {
  static constexpr std::string_view kind = "transformer_encoder_layer";
  static constexpr bool has_mask = Mask, has_padding = Padding;
  boost::hana::tuple<Children...> children{};

  constexpr encoder_layer() = default;
  constexpr explicit encoder_layer(boost::hana::tuple<Children...> c) : children{std::move(c)} {}

  static constexpr auto wiring() {
    enum {
      self_attn,
      linear1,
      dropout,
      linear2,
      norm1,
      norm2,
      dropout1,
      dropout2,
      activation,
      sum
    };
    wiring_table<11> w;
    w.inputs = 1 + int{Mask} + int{Padding};
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
      // The composition takes attn_mask first, as PyTorch's encoder does; attention takes
      // key_padding_mask first.
      if (Padding) s.inputs[s.input_count++] = 1 + int{Mask};
      if (Mask) s.inputs[s.input_count++] = 1;
      return step(dropout1, y);
    };
    const auto feed_forward = [&](int x, int like) {
      constexpr bool two = takes_like<nth<3, Children...>>;
      const int hidden = step(dropout, step(activation, step(linear1, x)));
      return step(dropout2, step(linear2, hidden, two ? like : -1));
    };
    if (NormFirst) {
      const int x = step(sum, 0, attend(step(norm1, 0)));
      w.outputs[0] = step(sum, x, feed_forward(step(norm2, x), x));
    } else {
      const int x = step(norm1, step(sum, 0, attend(0)));
      w.outputs[0] = step(norm2, step(sum, x, feed_forward(x, x)));
    }
    return w;
  }

  template <class... C>
  static constexpr auto rebind(C... c) {
    return encoder_layer<NormFirst, Mask, Padding, C...>(boost::hana::tuple<C...>{std::move(c)...});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

template <literal Name, class M>
using named_child = named<hana_string_t<Name>, M>;

template <dim_t D, dim_t Heads, dim_t Feedforward, class... Options>
struct make_encoder_layer {
  using biased = option_or<bias<true>, Options...>;
  using padded = option_or<key_padding_mask<false>, Options...>;
  using masked = option_or<attn_mask<mask_kind::none>, Options...>;
  using self_attn = multihead_attention<D, Heads, biased, option_or<batch_first<false>, Options...>,
                                        option_or<is_causal<false>, Options...>, padded, masked>;
  using linear2 =
      typename std::conditional_t<(D >= 0),
                                  std::type_identity<linear<Feedforward, (D >= 0 ? D : 0), biased>>,
                                  std::type_identity<linear_like<Feedforward, D, biased>>>::type;
  using norm = layer_norm<shape{D}, biased>;
  using type = encoder_layer<
      option_or<norm_first<false>, Options...>::value, masked::value != mask_kind::none,
      padded::value, named_child<"self_attn", self_attn>,
      named_child<"linear1", linear<D, Feedforward, biased>>, named_child<"dropout", dropout>,
      named_child<"linear2", linear2>, named_child<"norm1", norm>, named_child<"norm2", norm>,
      named_child<"dropout1", dropout>, named_child<"dropout2", dropout>,
      named_child<"activation", typename option_or<activation<relu>, Options...>::type>,
      named_child<"add", add>>;
};

/// The width of a layer whose attention is Child; `lazy` if Child is not a multihead_attention.
template <class Child>
inline constexpr dim_t width_of = lazy;
template <class Name, dim_t EmbedDim, dim_t Heads, class... Options>
inline constexpr dim_t width_of<named<Name, multihead_attention<EmbedDim, Heads, Options...>>> =
    EmbedDim;

}  // namespace detail

/// A transformer encoder layer (Vaswani et al., Attention Is All You Need, 2017): x +
/// self_attention(x), then x + linear2(activation(linear1(x))). Each sum is normalised or, with
/// norm_first<true>, the input of each sublayer instead. Dropout is applied to the output of each
/// sublayer and to the inner layer.
///
/// Inputs: [L, N, d], [N, L, d] with batch_first<true>, or [L, d]; then the masks that the options
/// ask for, attn_mask before key_padding_mask (see multihead_attention). Output: shaped as the
/// first input. D is a number, `lazy` or `dynamic`; Feedforward is the width of the inner layer.
/// Options: activation<Module> (relu), norm_first<bool> (false), batch_first<bool> (false),
/// bias<bool> (true), is_causal<bool> (false), key_padding_mask<bool> (false), attn_mask<kind>.
/// Constructed from transformer_settings, which default to PyTorch's: dropout 0.1, layer_norm_eps
/// 1e-5.
///
/// A composition with the children self_attn, linear1, linear2, norm1 and norm2, so that its
/// parameters have PyTorch's names.
template <dim_t D, dim_t Heads, dim_t Feedforward, class... Options>
struct transformer_encoder_layer
    : detail::make_encoder_layer<D, Heads, Feedforward, Options...>::type {
  static_assert(
      detail::option_set<activation<relu>, norm_first<false>, batch_first<false>, bias<true>,
                         is_causal<false>, key_padding_mask<false>,
                         attn_mask<mask_kind::none>>::template accepts<Options...>,
      "ikebana: transformer_encoder_layer takes the options activation, norm_first, batch_first, "
      "bias, is_causal, key_padding_mask and attn_mask, each once");
  using base = typename detail::make_encoder_layer<D, Heads, Feedforward, Options...>::type;

  constexpr transformer_encoder_layer() : transformer_encoder_layer(transformer_settings{}) {}
  constexpr transformer_encoder_layer(const transformer_settings& s) {
    child<0>().dropout = child<2>().p = child<6>().p = child<7>().p = s.dropout;
    child<4>().eps = child<5>().eps = s.layer_norm_eps;
  }
  constexpr explicit transformer_encoder_layer(base b) : base{std::move(b)} {}

  static constexpr auto input_names = [] {
    std::array<std::string_view, static_cast<std::size_t>(base::wiring().inputs)> names{"src"};
    std::size_t n = 1;
    if (base::has_mask) names[n++] = "src_mask";
    if (base::has_padding) names[n++] = "src_key_padding_mask";
    return names;
  }();

  /// With children other than those of such a layer, the result is the same composition under a
  /// generic type.
  template <class First, class... C>
  static constexpr auto rebind(First first, C... c) {
    using same = transformer_encoder_layer<detail::width_of<First>, Heads, Feedforward, Options...>;
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

/// A transformer_encoder_layer whose width is inferred from the first input.
template <dim_t Heads, dim_t Feedforward, class... Options>
using lazy_transformer_encoder_layer =
    transformer_encoder_layer<lazy, Heads, Feedforward, Options...>;

}  // namespace ikebana
