#pragma once

#include "ikebana/compose/sequential.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/positional_encoding.hpp"
#include "ikebana/nn/transformer_encoder.hpp"
#include "ikebana/nn/transformer_encoder_layer.hpp"

// A transformer that predicts the next symbol at each position of a text.

namespace language_model {

namespace ike = ikebana;
using namespace ike::literals;

/// Sizes: kinds of symbols, the longest text, features per symbol, heads and inner features per
/// layer, layers.
struct size {
  ike::dim_t symbols, length, width, heads, inner, layers;
};

/// Indices [N, L] -> logits [N * L, symbols]. The prediction at i depends only on symbols up to i.
template <size S>
constexpr auto network(double dropout = 0.1) {
  using layer = ike::lazy_transformer_encoder_layer<S.heads, S.inner, ike::batch_first<true>,
                                                    ike::is_causal<true>, ike::norm_first<true>>;
  using encoder = ike::transformer_encoder<S.layers, layer, ike::lazy_layer_norm<>>;
  return ike::sequential(
      "embedding"_m = ike::embedding<S.symbols, S.width>{},
      "positions"_m = ike::lazy_learned_positions<S.length, ike::batch_first<true>>{},
      "encoder"_m = encoder{layer{{.dropout = dropout}}, {}},
      "head"_m = ike::lazy_linear<S.symbols>{},
      "rows"_m = ike::flatten<ike::start_dim<0>, ike::end_dim<1>>{});
}

}  // namespace language_model
