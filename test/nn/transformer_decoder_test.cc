#include "ikebana/nn/transformer_decoder.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "encoder_run.hpp"
#include "ikebana/nn/transformer.hpp"

using ike::is_causal;
using ike::memory_key_padding_mask;
using ike::transformer_decoder;

namespace {

template <dim_t D, dim_t Heads, class... Options>
using layer = ike::transformer_decoder_layer<D, Heads, 5, Options...>;

/// Compares a model of two sequences, with masks of these shapes, with PyTorch's record.
template <class T, shape Target, shape Memory, shape... Masks, class M, std::size_t... I>
void compare_once(const std::string& name, const M& m, const std::string& where,
                  std::index_sequence<I...>) {
  using run = recorded_model<T>;
  auto net = ike::initialize<T, Target, Memory, Masks...>(m, ike::seed{1});
  const run data(net);
  data.fill(name);
  ike::tensor<T, Target> x, dx;
  ike::tensor<T, Memory> memory, dmemory;
  copy_bytes(x.data(), run::at(name, "x0"));
  copy_bytes(memory.data(), run::at(name, "x1"));
  const std::tuple<ike::tensor<bool, Masks>...> masks{mask_of<Masks>(name, 2 + I)...};
  const auto y = net(x, memory, std::get<I>(masks)...);
  const ike::tensor kept(y);
  decltype(ike::tensor(y)) dy;
  copy_bytes(dy.data(), run::at(name, "gy0"));
  net.backward(dy, dx, dmemory);
  data.check(name, kept.data(), dx.data(), where);
  check_close<T>(dmemory.data(), run::at(name, "gx1"), name + " gx1" + where);
}

template <shape Target, shape Memory, shape... Masks, class M>
void compare_decoder(const std::string& name, const M& m) {
  compares("layers_attention", name);
  for_each_instruction_set([&](const std::string& where) {
    compare_once<float, Target, Memory, Masks...>(name, m, where,
                                                  std::index_sequence_for<decltype(Masks)...>{});
    compare_once<double, Target, Memory, Masks...>(name, m, where,
                                                   std::index_sequence_for<decltype(Masks)...>{});
  });
}

}  // namespace

TEST_CASE("transformer decoders compute what PyTorch recorded") {
  compare_decoder<shape{5, 2, 4}, shape{3, 2, 4}>("decoder_layer", layer<4, 2>{no_dropout});
  compare_decoder<shape{2, 5, 6}, shape{2, 3, 6}>(
      "decoder_layer_causal", layer<lazy, 3, is_causal<true>, batched, first, gelu>{no_dropout});
  compare_decoder<shape{5, 2, 4}, shape{3, 2, 4}, shape{2, 5}, shape{2, 3}>(
      "decoder_layer_padding", layer<4, 2, padded, memory_key_padding_mask<true>>{no_dropout});
  constexpr auto boolean = ike::mask_kind::boolean;
  compare_decoder<shape{5, 2, 4}, shape{3, 2, 4}, shape{5, 5}, shape{5, 3}, shape{2, 5},
                  shape{2, 3}>(
      "decoder_layer_masks",
      layer<4, 2, gelu, masked, ike::memory_mask<boolean>, padded, memory_key_padding_mask<true>>{
          no_dropout});
  using one = layer<lazy, 2, gelu>;
  compare_decoder<shape{5, 2, 4}, shape{3, 2, 4}>(
      "decoder", transformer_decoder<2, one, ike::layer_norm<lazy>>{one{no_dropout}, {}});
  CHECK(layers_not_compared("attention", "decoder").empty());
}

TEST_CASE("transformers compute what PyTorch recorded") {
  compare_decoder<shape{3, 2, 4}, shape{5, 2, 4}>(
      "transformer", ike::transformer<4, 2, 1, 2, 5, gelu>{no_dropout});
  using masks =
      ike::lazy_transformer<3, 2, 1, 5, is_causal<true>, batched, first, gelu,
                            ike::src_key_padding_mask<true>, ike::tgt_key_padding_mask<true>,
                            memory_key_padding_mask<true>>;
  compare_decoder<shape{2, 3, 6}, shape{2, 5, 6}, shape{2, 3}, shape{2, 5}, shape{2, 3}>(
      "transformer_masks", masks{no_dropout});
  constexpr auto boolean = ike::mask_kind::boolean;
  using all = ike::transformer<4, 2, 1, 1, 5, gelu, ike::src_mask<boolean>, ike::tgt_mask<boolean>,
                               ike::memory_mask<boolean>, ike::src_key_padding_mask<true>,
                               ike::tgt_key_padding_mask<true>, memory_key_padding_mask<true>>;
  compare_decoder<shape{3, 2, 4}, shape{5, 2, 4}, shape{3, 3}, shape{5, 5}, shape{5, 3},
                  shape{2, 3}, shape{2, 5}, shape{2, 3}>("transformer_all_masks", all{no_dropout});
  CHECK(layers_not_compared("attention", "transformer").empty());
  static_assert(all::input_names[4] == "memory_mask" &&
                all::input_names[5] == "src_key_padding_mask");
  static_assert(masks::input_names[2] == "src_key_padding_mask");
}

TEST_CASE("a lazy transformer becomes one of the same name, with its settings") {
  using net = ike::lazy_transformer<2, 1, 2, 5>;
  static_assert(ike::is_lazy_v<net>);
  static_assert(
      std::is_same_v<ike::become_t<net, shape{dynamic, dynamic, 4}, shape{dynamic, dynamic, 4}>,
                     ike::transformer<4, 2, 1, 2, 5>>);
  const net made{{.dropout = 0.25, .layer_norm_eps = 0.5}};
  const auto& encoder = ike::detail::module_of(boost::hana::at_c<0>(made.children));
  CHECK(ike::detail::module_of(boost::hana::at_c<1>(encoder.children)).eps == 0.5);
  CHECK(net::kind == "transformer");
}

TEST_CASE("a lazy transformer_decoder becomes one of the same name") {
  using decoder = transformer_decoder<3, layer<lazy, 2>, ike::layer_norm<lazy>>;
  static_assert(ike::is_lazy_v<decoder>);
  static_assert(
      std::is_same_v<ike::become_t<decoder, shape{dynamic, dynamic, 4}, shape{dynamic, dynamic, 4}>,
                     transformer_decoder<3, layer<4, 2>, ike::layer_norm<4>>>);
  CHECK(decoder::kind == "transformer_decoder");
}

TEST_CASE("what a causal decoder gives for an element does not depend on later ones") {
  using decoder = transformer_decoder<2, layer<4, 2, is_causal<true>>>;
  auto m = ike::initialize<float, shape{5, 1, 4}, shape{3, 1, 4}>(decoder{}, ike::seed{1});
  m.eval();
  auto x = ike::uniform<float, shape{5, 1, 4}>(ike::seed{2});
  const auto memory = ike::uniform<float, shape{3, 1, 4}>(ike::seed{3});
  const ike::tensor before(m(x, memory));
  for (dim_t i = 12; i < 20; ++i) x[i] += 1;
  const auto after = m(x, memory);
  for (dim_t i = 0; i < 12; ++i) CHECK(after[i] == before[i]);
  CHECK(after[12] != before[12]);
}

TEST_CASE("masks that are added to a decoder's scores have gradients") {
  using decoder = layer<4, 2, gelu, ike::attn_mask<ike::mask_kind::additive>,
                        ike::memory_mask<ike::mask_kind::additive>>;
  const auto r = ike::gradient_check(decoder{no_dropout},
                                     std::tuple{ike::uniform<double, shape{3, 2, 4}>(ike::seed{1}),
                                                ike::uniform<double, shape{2, 2, 4}>(ike::seed{2}),
                                                ike::uniform<double, shape{3, 3}>(ike::seed{3}),
                                                ike::uniform<double, shape{3, 2}>(ike::seed{4})});
  CHECK(r.largest < 1e-6);
}

TEST_CASE("inputs of a decoder have PyTorch's names") {
  using namespace ike::literals;
  using decoder = transformer_decoder<1, layer<4, 2, memory_key_padding_mask<true>>>;
  auto m =
      ike::initialize<float, shape{3, 1, 4}, shape{2, 1, 4}, shape{1, 2}>(decoder{}, ike::seed{1});
  m.eval();
  const auto x = ike::uniform<float, shape{3, 1, 4}>(ike::seed{2});
  const auto memory = ike::uniform<float, shape{2, 1, 4}>(ike::seed{3});
  ike::tensor<bool, shape{1, 2}> ignored;
  ignored[1] = true;
  const ike::tensor expected(m(x, memory, ignored));
  const auto named = m(x, "memory_key_padding_mask"_arg = ignored, "memory"_arg = memory);
  for (dim_t i = 0; i < 12; ++i) CHECK(named[i] == expected[i]);
}
