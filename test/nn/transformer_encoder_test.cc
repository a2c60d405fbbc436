#include "ikebana/nn/transformer_encoder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "encoder_run.hpp"

using ike::transformer_encoder;

TEST_CASE("a transformer_encoder computes what PyTorch recorded") {
  using plain = block<lazy, 2, gelu>;
  compare_network<shape{5, 2, 4}>("encoder", transformer_encoder<2, plain>{plain{no_dropout}});
  using normed = block<lazy, 3, gelu, first, batched>;
  compare_network<shape{2, 5, 6}>(
      "encoder_norm",
      transformer_encoder<2, normed, ike::layer_norm<lazy>>{normed{no_dropout}, {}});
  using with_masks = block<4, 2, gelu, padded, masked>;
  compare_network<shape{5, 2, 4}, shape{5, 5}, shape{2, 5}>(
      "encoder_masks",
      transformer_encoder<2, with_masks, ike::layer_norm<4>>{with_masks{no_dropout}, {}});
  compare_in_float<shape{5, 2, 4}, shape{5, 5}, shape{2, 5}>(
      "encoder_masks",
      transformer_encoder<2, with_masks, ike::layer_norm<4>>{with_masks{no_dropout}, {}});
  CHECK(layers_not_compared("attention", "encoder").empty());
}

TEST_CASE("a lazy transformer_encoder becomes one of the same name") {
  using encoder = transformer_encoder<12, block<lazy, 2>, ike::layer_norm<lazy>>;
  static_assert(ike::is_lazy_v<encoder>);
  static_assert(std::is_same_v<ike::become_t<encoder, shape{dynamic, dynamic, 4}>,
                               transformer_encoder<12, block<4, 2>, ike::layer_norm<4>>>);
}

TEST_CASE("the layers of a transformer_encoder begin with weights of their own") {
  using encoder = transformer_encoder<2, block<lazy, 2>>;
  const auto m = ike::initialize<float, shape{5, 2, 4}>(encoder{}, ike::seed{1});
  const auto state = ike::get_state_dict(m);
  CHECK(state.size() == 24);
  const auto& one = state.at("layers.0.self_attn.in_proj_weight").bytes;
  const auto& two = state.at("layers.1.self_attn.in_proj_weight").bytes;
  CHECK_FALSE(std::ranges::equal(one, two));
}

TEST_CASE("masks may be given to a transformer_encoder by name") {
  using namespace ike::literals;
  using encoder = transformer_encoder<1, block<4, 2, padded, masked>>;
  auto m =
      ike::initialize<float, shape{3, 1, 4}, shape{3, 3}, shape{1, 3}>(encoder{}, ike::seed{1});
  m.eval();
  const auto x = ike::uniform<float, shape{3, 1, 4}>(ike::seed{2});
  ike::tensor<bool, shape{3, 3}> mask;
  ike::tensor<bool, shape{1, 3}> ignored;
  mask[1] = ignored[2] = true;
  const auto y = m(x, mask, ignored);
  const std::vector<float> in_order(y.data(), y.data() + y.size());
  const auto named = m(x, "src_key_padding_mask"_arg = std::as_const(ignored),
                       "src_mask"_arg = std::as_const(mask));
  for (dim_t i = 0; i < y.size(); ++i) CHECK(named[i] == in_order[static_cast<std::size_t>(i)]);
}
