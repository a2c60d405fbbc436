#pragma once

#include <array>
#include <boost/hana/at.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/transformer_decoder.hpp"
#include "ikebana/nn/transformer_encoder.hpp"

namespace ikebana {

namespace detail {
struct src_key_padding_mask_option;
struct tgt_key_padding_mask_option;
struct src_mask_option;
struct tgt_mask_option;
}  // namespace detail

/// Whether there is an input of bools that marks the ignored elements of each source.
template <bool B>
struct src_key_padding_mask {
  using option = detail::src_key_padding_mask_option;
  static constexpr bool value = B;
};

/// Whether there is an input of bools that marks the ignored elements of each target.
template <bool B>
struct tgt_key_padding_mask {
  using option = detail::tgt_key_padding_mask_option;
  static constexpr bool value = B;
};

/// A mask of which elements of the source may attend to each other, see attn_mask.
template <mask_kind Kind>
struct src_mask {
  using option = detail::src_mask_option;
  static constexpr mask_kind value = Kind;
};

/// A mask of which elements of the target may attend to each other, see attn_mask.
template <mask_kind Kind>
struct tgt_mask {
  using option = detail::tgt_mask_option;
  static constexpr mask_kind value = Kind;
};

namespace detail {

/// Which masks a transformer has.
struct transformer_masks {
  bool source = false, source_padding = false;
  decoder_masks decoder{};
};

/// An encoder, and a decoder whose memory is the encoder's output.
template <transformer_masks Masks, class... Children>
struct encoder_decoder {
  static constexpr std::string_view kind = "transformer";
  boost::hana::tuple<Children...> children{};

  constexpr encoder_decoder() = default;
  constexpr explicit encoder_decoder(boost::hana::tuple<Children...> c) : children{std::move(c)} {}

  static constexpr auto wiring() {
    wiring_table<2> w;
    w.inputs = 2;
    w.steps[0] = {0, {0}, 1};
    w.steps[1] = {1, {1}, 2};
    const auto mask = [&w](int step, bool given) {
      if (given) w.steps[step].inputs[w.steps[step].input_count++] = w.inputs++;
    };
    mask(0, Masks.source);
    mask(1, Masks.decoder.target);
    mask(1, Masks.decoder.memory);
    mask(0, Masks.source_padding);
    mask(1, Masks.decoder.target_padding);
    mask(1, Masks.decoder.memory_padding);
    w.steps[1].inputs[1] = w.inputs;
    w.outputs[0] = w.inputs + 1;
    return w;
  }

  template <class... C>
  static constexpr auto rebind(C... c) {
    return encoder_decoder<Masks, C...>(boost::hana::tuple<C...>{std::move(c)...});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

template <dim_t D, dim_t Heads, dim_t EncoderLayers, dim_t DecoderLayers, dim_t Feedforward,
          class... Options>
struct make_transformer {
  using activated = option_or<activation<relu>, Options...>;
  using first = option_or<norm_first<false>, Options...>;
  using batched = option_or<batch_first<false>, Options...>;
  using biased = option_or<bias<true>, Options...>;
  static constexpr mask_kind source = option_or<src_mask<mask_kind::none>, Options...>::value,
                             target = option_or<tgt_mask<mask_kind::none>, Options...>::value;
  using memory = option_or<memory_mask<mask_kind::none>, Options...>;
  static constexpr transformer_masks masks{
      source != mask_kind::none,
      option_or<src_key_padding_mask<false>, Options...>::value,
      {target != mask_kind::none, memory::value != mask_kind::none,
       option_or<tgt_key_padding_mask<false>, Options...>::value,
       option_or<memory_key_padding_mask<false>, Options...>::value}};
  using norm = layer_norm<shape{D}, biased>;
  using encoder_layer =
      transformer_encoder_layer<D, Heads, Feedforward, activated, first, batched, biased,
                                key_padding_mask<masks.source_padding>, attn_mask<source>>;
  using decoder_layer =
      transformer_decoder_layer<D, Heads, Feedforward, activated, first, batched, biased,
                                option_or<is_causal<false>, Options...>, attn_mask<target>, memory,
                                key_padding_mask<masks.decoder.target_padding>,
                                memory_key_padding_mask<masks.decoder.memory_padding>>;
  using encoder = transformer_encoder<EncoderLayers, encoder_layer, norm>;
  using decoder = transformer_decoder<DecoderLayers, decoder_layer, norm>;
  using type =
      encoder_decoder<masks, named_child<"encoder", encoder>, named_child<"decoder", decoder>>;
};

/// The width of a transformer whose encoder is Child; `lazy` if it is not a transformer_encoder.
template <class Child>
inline constexpr dim_t width_of_encoder = lazy;
template <class Name, dim_t N, dim_t D, dim_t Heads, dim_t Feedforward, class... Options,
          class... Norm>
inline constexpr dim_t width_of_encoder<
    named<Name, transformer_encoder<N, transformer_encoder_layer<D, Heads, Feedforward, Options...>,
                                    Norm...>>> = D;

}  // namespace detail

/// A transformer (Vaswani et al., Attention Is All You Need, 2017): an encoder, and a decoder that
/// attends to its output, each followed by a layer_norm: PyTorch's Transformer, whose defaults are
/// transformer<512, 8, 6, 6, 2048>. D is the width, a number, `lazy` or `dynamic`; Feedforward that
/// of the inner layers.
///
/// Inputs: the source [S, N, d] and the target [L, N, d], [N, S, d] and [N, L, d] with
/// batch_first<true>, or without N; then the masks that the options ask for, in this order:
/// src_mask ([S, S]), tgt_mask ([L, L]), memory_mask ([L, S]), src_key_padding_mask ([N, S],
/// bools), tgt_key_padding_mask ([N, L]) and memory_key_padding_mask ([N, S]); see
/// multihead_attention. Output: shaped as the target. With is_causal<true>, an element of the
/// target attends to those up to itself alone. Options: is_causal<bool> (false), activation<Module>
/// (relu), norm_first<bool> (false), batch_first<bool> (false), bias<bool> (true), and the masks:
/// src_mask<kind>, .., src_key_padding_mask<bool>, ...
/// Constructed from transformer_settings, with which all layers and norms are.
///
/// A composition with the children encoder and decoder: paths are encoder.layers.0.linear1.weight,
/// ..., decoder.norm.bias, as in PyTorch.
template <dim_t D, dim_t Heads, dim_t EncoderLayers, dim_t DecoderLayers, dim_t Feedforward,
          class... Options>
struct transformer : detail::make_transformer<D, Heads, EncoderLayers, DecoderLayers, Feedforward,
                                              Options...>::type {
  static_assert(
      detail::option_set<activation<relu>, norm_first<false>, batch_first<false>, bias<true>,
                         is_causal<false>, src_mask<mask_kind::none>, tgt_mask<mask_kind::none>,
                         memory_mask<mask_kind::none>, src_key_padding_mask<false>,
                         tgt_key_padding_mask<false>,
                         memory_key_padding_mask<false>>::template accepts<Options...>,
      "ikebana: transformer takes the options activation, norm_first, batch_first, bias, "
      "is_causal, src_mask, tgt_mask, memory_mask, src_key_padding_mask, tgt_key_padding_mask and "
      "memory_key_padding_mask, each once");
  using parts =
      detail::make_transformer<D, Heads, EncoderLayers, DecoderLayers, Feedforward, Options...>;
  using base = typename parts::type;

  constexpr transformer() : transformer(transformer_settings{}) {}
  constexpr transformer(const transformer_settings& s) {
    typename parts::norm norm{};
    norm.eps = s.layer_norm_eps;
    detail::module_of(boost::hana::at_c<0>(this->children)) =
        typename parts::encoder{typename parts::encoder_layer{s}, norm};
    detail::module_of(boost::hana::at_c<1>(this->children)) =
        typename parts::decoder{typename parts::decoder_layer{s}, norm};
  }
  constexpr explicit transformer(base b) : base{std::move(b)} {}

  static constexpr auto input_names = [] {
    std::array<std::string_view, static_cast<std::size_t>(base::wiring().inputs)> names{"src",
                                                                                        "tgt"};
    std::size_t n = 2;
    constexpr auto masks = parts::masks;
    if (masks.source) names[n++] = "src_mask";
    if (masks.decoder.target) names[n++] = "tgt_mask";
    if (masks.decoder.memory) names[n++] = "memory_mask";
    if (masks.source_padding) names[n++] = "src_key_padding_mask";
    if (masks.decoder.target_padding) names[n++] = "tgt_key_padding_mask";
    if (masks.decoder.memory_padding) names[n++] = "memory_key_padding_mask";
    return names;
  }();

  /// With children other than those of such a transformer, the result is the same composition under
  /// a generic type.
  template <class Encoder, class Decoder>
  static constexpr auto rebind(Encoder encoder, Decoder decoder) {
    using same = transformer<detail::width_of_encoder<Encoder>, Heads, EncoderLayers, DecoderLayers,
                             Feedforward, Options...>;
    auto made = base::rebind(std::move(encoder), std::move(decoder));
    if constexpr (std::is_same_v<decltype(made), typename same::base>)
      return same(std::move(made));
    else
      return made;
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// A transformer whose width is inferred from the first source.
template <dim_t Heads, dim_t EncoderLayers, dim_t DecoderLayers, dim_t Feedforward,
          class... Options>
using lazy_transformer =
    transformer<lazy, Heads, EncoderLayers, DecoderLayers, Feedforward, Options...>;

}  // namespace ikebana
