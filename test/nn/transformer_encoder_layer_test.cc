#include "ikebana/nn/transformer_encoder_layer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <type_traits>

#include "encoder_run.hpp"
#include "ikebana/module/print.hpp"

TEST_CASE("a transformer_encoder_layer computes what PyTorch recorded") {
  compare_network<shape{5, 4}>("layer", block<4, 2>{no_dropout});
  compare_network<shape{2, 5, 6}>("layer_batch_first", block<lazy, 3, batched>{no_dropout});
  compare_network<shape{5, 2, 4}>(
      "layer_norm_first", block<lazy, 2, gelu, first>{{.dropout = 0, .layer_norm_eps = 0.1}});
}

TEST_CASE("a transformer_encoder_layer hands its masks to its attention") {
  compare_network<shape{5, 2, 4}, shape{5, 5}, shape{2, 5}>(
      "layer_masks", block<4, 2, gelu, padded, masked>{no_dropout});
  compare_network<shape{2, 5, 4}, shape{2, 5}>("layer_padding",
                                               block<lazy, 2, gelu, padded, batched>{no_dropout});
  compare_in_float<shape{5, 2, 4}, shape{5, 5}, shape{2, 5}>(
      "layer_masks", block<4, 2, gelu, padded, masked>{no_dropout});
  CHECK(layers_not_compared("attention", "layer").empty());
}

TEST_CASE("a width left out, or known at run time alone, gives the same weights and gradients") {
  using namespace ike::literals;
  constexpr shape in{5, 2, 4}, unknown{dynamic, dynamic, dynamic};
  using as_written = block<4, 2, gelu>;
  using left_out = block<lazy, 2, gelu>;
  static_assert(ike::is_lazy_v<left_out>);
  static_assert(!ike::is_lazy_v<as_written>);
  static_assert(std::is_same_v<ike::become_t<left_out, in>, as_written>);
  static_assert(std::is_same_v<ike::become_t<left_out, unknown>, block<dynamic, 2, gelu>>);

  auto one = ike::initialize<float, in>(as_written{no_dropout}, ike::seed{3});
  auto two = ike::initialize<float, unknown>(left_out{no_dropout}, ike::seed{3}, in);
  REQUIRE(equal(ike::get_state_dict(one), ike::get_state_dict(two)));
  const auto x = ike::uniform<float, in>(ike::seed{4}), dy = ike::uniform<float, in>(ike::seed{5});
  ike::tensor<float, in> dx_one, dx_two;
  const auto y_one = one(x);
  const auto y_two = two(x);
  one.backward(dy, dx_one);
  two.backward(dy, dx_two);
  for (dim_t i = 0; i < dy.size(); ++i) {
    CHECK(y_one[i] == y_two[i]);
    CHECK(dx_one[i] == dx_two[i]);
  }
  CHECK(std::ranges::equal(one.gradients(), two.gradients()));
}

TEST_CASE("the gradients of a transformer_encoder_layer are those of its forward") {
  check_gradient_of<shape{3, 2, 4}>(
      block<lazy, 2, gelu, ike::bias<false>, ike::is_causal<true>>{no_dropout});
}

TEST_CASE("a transformer_encoder_layer has PyTorch's names, settings and order of children") {
  constexpr auto p = ike::lower<ike::sizes_of<block<4, 2>>(1)>(block<4, 2>{}, shape{5, 2, 4});
  std::set<std::string> sorted;
  for (const auto& parameter : p.all_parameters()) sorted.insert(p.path(parameter).c_str());
  CHECK(sorted == std::set<std::string>{"linear1.bias", "linear1.weight", "linear2.bias",
                                        "linear2.weight", "norm1.bias", "norm1.weight",
                                        "norm2.bias", "norm2.weight", "self_attn.in_proj_bias",
                                        "self_attn.in_proj_weight", "self_attn.out_proj.bias",
                                        "self_attn.out_proj.weight"});
  const std::string text =
      to_string(block<4, 2, gelu, ike::bias<false>>{{.dropout = 0.25, .layer_norm_eps = 0.5}});
  for (const char* line :
       {"transformer_encoder_layer(\n  (self_attn): multihead_attention(embed_dim=4, num_heads=2, "
        "dropout=0.25, bias=false, batch_first=false)\n  (linear1): linear(in_features=4, "
        "out_features=5, bias=false)\n  (dropout): dropout(p=0.25)\n  (linear2): "
        "linear(in_features=5, out_features=4, bias=false)\n  (norm1): layer_norm(",
        "eps=0.5", "(dropout2): dropout(p=0.25)", "(activation): gelu("})
    CHECK_MESSAGE(text.find(line) != std::string::npos, text);
  CHECK(to_string(block<lazy, 2>{}).find("(linear2): linear(in_features=5, out_features=lazy") !=
        std::string::npos);
}

TEST_CASE("a transformer_encoder_layer says which of its children refuses an input") {
  const auto says = [](const auto& m, const ike::shape_list& in) {
    return sentence_of(ike::infer(m, in));
  };
  CHECK(says(block<4, 2>{}, shape{5, 2, 6}) ==
        "self_attn: multihead_attention expects embed_dim = 4, got 6 (input [5, 2, 6])");
  CHECK(says(block<4, 2, padded>{}, {shape{5, 2, 4}, shape{5, 2}}) ==
        "self_attn: multihead_attention expects a key_padding_mask [2, 5], got [5, 2]");
}

TEST_CASE("the parameters of a layer stand in PyTorch's order") {
  const auto net = ike::initialize<double, shape{3, 2, 4}>(block<4, 2, first>{}, ike::seed{1});
  std::vector<std::string> names;
  for (const auto& e : ike::get_state_dict(net)) names.push_back(e.name);
  CHECK(names == std::vector<std::string>{"self_attn.in_proj_weight", "self_attn.in_proj_bias",
                                          "self_attn.out_proj.weight", "self_attn.out_proj.bias",
                                          "linear1.weight", "linear1.bias", "linear2.weight",
                                          "linear2.bias", "norm1.weight", "norm1.bias",
                                          "norm2.weight", "norm2.bias"});
}
