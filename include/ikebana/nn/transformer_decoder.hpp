#pragma once

#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/transformer_decoder_layer.hpp"
#include "ikebana/nn/transformer_encoder.hpp"

namespace ikebana {

/// N layers one after another, all given the same memory and masks, and an optional final norm:
/// transformer_decoder<6, transformer_decoder_layer<512, 8, 2048>, layer_norm<512>>. Construction,
/// inputs, paths and initial weights are as those of transformer_encoder.
template <dim_t N, class Layer, class... Norm>
struct transformer_decoder
    : detail::layered<"transformer_decoder", transformer_decoder, N, Layer, Norm...> {
  using transformer_decoder::layered::layered;

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace ikebana
