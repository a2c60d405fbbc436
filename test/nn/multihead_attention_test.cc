#include "ikebana/nn/multihead_attention.hpp"

#include <doctest/doctest.h>

#include <type_traits>

#include "ikebana/model/initialize.hpp"
#include "layers.hpp"

using namespace ikebana;

namespace {

template <class M>
void check(const std::string& name, const M& m) {
  compare_layer("attention", name, m);
}

using padded = key_padding_mask<true>;
using boolean = attn_mask<mask_kind::boolean>;
using additive = attn_mask<mask_kind::additive>;
using weights = need_weights<true>;
using all_heads = average_attn_weights<false>;
using bias_kv = add_bias_kv<true>;
using zero_attn = add_zero_attn<true>;

/// Masks are drawn from the words of a stream.
template <class M>
void check_masked(const M& m, const shape_list& ins) {
  check_gradients(m, ins, true, [](any_leaf_run<double>& run) {
    for (std::size_t i = 0; i < run.ins.size(); ++i)
      for (dim_t e = 0; e < run.booleans[i].size(); ++e)
        run.booleans[i][e] = (e * 7 + e / 4) % 3 == 0;
  });
}

/// The same weights and inputs for both.
template <class A, class B>
void check_same_bits(const A& a, const B& b, const shape_list& ins) {
  leaf_run<float, A> one(a, ins);
  leaf_run<float, B> two(b, ins);
  REQUIRE(one.parameters.size() == two.parameters.size());
  for (any_leaf_run<float>* r :
       {static_cast<any_leaf_run<float>*>(&one), static_cast<any_leaf_run<float>*>(&two)}) {
    fill_random(r->parameters.data(), r->parameters.size(), 1);
    for (std::size_t i = 0; i < ins.size(); ++i)
      fill_random(r->inputs[i].data(), r->inputs[i].size(), 2 + i);
    fill_random(r->output_gradient.data(), r->output_gradient.size(), 9);
    r->forward();
    r->backward(false);
  }
  for (dim_t i = 0; i < one.output.size(); ++i) CHECK(one.output[i] == two.output[i]);
  for (dim_t i = 0; i < one.gradients.size(); ++i) CHECK(one.gradients[i] == two.gradients[i]);
}

}  // namespace

TEST_CASE("multihead_attention computes what PyTorch recorded") {
  check("mha_self", multihead_attention<6, 3>{});
  check("mha_self_batch_first", multihead_attention<6, 2, batch_first<true>>{});
  check("mha_self_unbatched", multihead_attention<6, 2, batch_first<true>>{});
  check("mha_one_head", multihead_attention<5, 1, bias<false>>{});
  check("mha_wide", multihead_attention<18, 2>{});
  check("mha_cross", multihead_attention<6, 2>{});
  check("mha_cross_no_bias", multihead_attention<6, 2, bias<false>>{});
  check("mha_cross_batch_first", multihead_attention<6, 3, batch_first<true>>{});
  check("mha_cross_unbatched", multihead_attention<6, 3>{});
  check("mha_kdim_vdim", multihead_attention<6, 2, kdim<5>, vdim<7>>{});
  check("mha_kdim", multihead_attention<6, 2, bias<false>, kdim<5>, batch_first<true>>{});
  check("mha_weights", multihead_attention<6, 3, need_weights<true>>{});
  check("mha_weights_unbatched", multihead_attention<6, 3, need_weights<true>>{});
  check("mha_causal", multihead_attention<6, 2, is_causal<true>>{});
  check("mha_causal_longer", multihead_attention<6, 2, is_causal<true>, batch_first<true>>{});
  check("mha_causal_shorter", multihead_attention<6, 2, is_causal<true>>{});
}

TEST_CASE("multihead_attention masks as PyTorch recorded") {
  check("mha_padding", multihead_attention<6, 2, padded>{});
  check("mha_padding_batch_first", multihead_attention<6, 2, padded, batch_first<true>>{});
  check("mha_padding_unbatched", multihead_attention<6, 2, padded>{});
  check("mha_mask", multihead_attention<6, 2, boolean>{});
  check("mha_mask_of_heads", multihead_attention<6, 2, boolean>{});
  check("mha_mask_unbatched", multihead_attention<6, 2, boolean>{});
  check("mha_added", multihead_attention<6, 2, additive>{});
  check("mha_added_of_heads", multihead_attention<6, 2, additive, batch_first<true>>{});
  check("mha_padding_and_mask", multihead_attention<6, 2, boolean, padded, need_weights<true>>{});
  check("mha_padding_and_added", multihead_attention<6, 2, additive, padded>{});
  check("mha_all_weights", multihead_attention<6, 3, weights, all_heads>{});
  check("mha_all_weights_unbatched", multihead_attention<6, 3, weights, all_heads>{});
  check("mha_bias_kv", multihead_attention<6, 2, bias_kv>{});
  check("mha_bias_kv_unbatched", multihead_attention<6, 2, bias_kv>{});
  check("mha_zero_attn", multihead_attention<6, 3, zero_attn, batch_first<true>, bias<false>>{});
  check("mha_bias_zero", multihead_attention<6, 2, bias_kv, zero_attn, weights>{});
  check("mha_bias_zero_kdim",
        multihead_attention<6, 2, bias_kv, zero_attn, kdim<5>, vdim<7>, bias<false>>{});
  check("mha_bias_zero_causal",
        multihead_attention<6, 2, bias_kv, zero_attn, is_causal<true>, batch_first<true>>{});
  check("mha_bias_zero_masks",
        multihead_attention<6, 2, bias_kv, zero_attn, boolean, padded, weights, all_heads>{});
  check("mha_bias_zero_added",
        multihead_attention<6, 2, bias_kv, zero_attn, additive, batch_first<true>>{});
  CHECK(layers_not_compared("attention", "mha_").empty());
}

TEST_CASE("the gradients of multihead_attention are those of its forward") {
  check_gradients(multihead_attention<4, 2>{}, shape{3, 2, 4});
  check_gradients(multihead_attention<4, 2, kdim<3>, vdim<5>, batch_first<true>, is_causal<true>>{},
                  {shape{2, 3, 4}, shape{2, 4, 3}, shape{2, 4, 5}});
  check_masked(multihead_attention<4, 2, padded, additive, need_weights<true>>{},
               {shape{3, 2, 4}, shape{4, 2, 4}, shape{4, 2, 4}, shape{2, 4}, shape{3, 4}});
  check_masked(multihead_attention<4, 2, boolean>{}, {shape{3, 2, 4}, shape{4, 3, 3}});
  multihead_attention<4, 2, need_weights<true>, additive> dropping;
  dropping.dropout = 0.4;
  check_gradients(dropping, {shape{3, 2, 4}, shape{4, 3, 3}});
}

TEST_CASE("the gradients with keys that are added, and of all heads' weights, are exact") {
  multihead_attention<4, 2, bias_kv, zero_attn, additive, is_causal<true>> m;
  m.dropout = 0.4;
  check_gradients(m, {shape{3, 2, 4}, shape{5, 2, 4}, shape{5, 2, 4}, shape{3, 5}});
  check_masked(multihead_attention<4, 2, bias_kv, padded, boolean, is_causal<true>>{},
               {shape{3, 2, 4}, shape{2, 3}, shape{4, 3, 3}});
  multihead_attention<4, 2, zero_attn, weights, all_heads, additive> dropping;
  dropping.dropout = 0.4;
  check_gradients(dropping, {shape{3, 2, 4}, shape{3, 3}});
}

TEST_CASE("no query of a long sequence reads later keys, with keys that are added") {
  // The mask is the largest memory of this network, so that it begins where empty ones do, too.
  constexpr shape extents{200, 1, 2};
  auto net =
      initialize<float, extents>(multihead_attention<2, 1, zero_attn, is_causal<true>>{}, seed{1});
  auto x = uniform<float, extents>(seed{2});
  const tensor first{net(x)};
  for (dim_t i = 2; i < x.size(); ++i) x[i] += 1;
  const auto y = net(x);
  CHECK(y[0] == first[0]);
  CHECK(y[1] == first[1]);
}

TEST_CASE("with keys that are added, extents of run time and none, and what attention says") {
  check_same_bits(multihead_attention<6, 2, bias_kv, zero_attn>{},
                  multihead_attention<dynamic, 2, bias_kv, zero_attn>{}, {shape{5, 2, 6}});
  check_empty_batch(multihead_attention<4, 2, bias_kv, zero_attn>{}, shape{3, 0, 4});
  check_empty_batch(multihead_attention<4, 2, padded, zero_attn>{}, {shape{0, 2, 4}, shape{2, 0}});
  leaf_run<float, multihead_attention<4, 2, bias_kv>> no_keys(
      {}, {shape{3, 4}, shape{0, 4}, shape{0, 4}});
  no_keys.forward();
  no_keys.backward(false);
  using every = multihead_attention<lazy, 2, bias_kv, zero_attn, weights, all_heads>;
  CHECK(every{}.infer({shape{dynamic, 3, 4}}).output(1) == shape{3, 2, dynamic, dynamic});
  CHECK(described(multihead_attention<4, 2, weights, all_heads, bias_kv, zero_attn>{})
            .ends_with("need_weights=true, average_attn_weights=false, add_bias_kv=true, "
                       "add_zero_attn=true"));
}

TEST_CASE("dropout drops attention weights in training alone") {
  multihead_attention<4, 2, need_weights<true>> m;
  m.dropout = 0.5;
  leaf_run<float, decltype(m)> run(m, shape{40, 4});
  fill_random(run.input.data(), run.input.size(), 1);
  fill_random(run.parameters.data(), run.parameters.size(), 2);
  const auto sums = [&](bool training) {
    run.forward(training);
    dim_t zeros = 0;
    double sum = 0;
    for (dim_t i = 0; i < 1600; ++i) {
      sum += static_cast<double>(run.outputs[1][i]);
      zeros += run.outputs[1][i] == 0;
    }
    return std::pair{sum, zeros};
  };
  const auto [sum, zeros] = sums(false);
  CHECK(sum == doctest::Approx(40));
  CHECK(zeros == 0);
  const auto [dropped_sum, dropped_zeros] = sums(true);
  // Both heads drop a weight in a quarter of all cases.
  CHECK(dropped_zeros > 300);
  CHECK(dropped_zeros < 500);
  CHECK(dropped_sum == doctest::Approx(40).epsilon(0.1));
}

TEST_CASE("dropout without the weights drops the same ones") {
  const shape each{9, 2, 6};
  multihead_attention<6, 2> fused;
  multihead_attention<6, 2, need_weights<true>> weighted;
  fused.dropout = weighted.dropout = 0.4;
  leaf_run<double, decltype(fused)> one(fused, each);
  leaf_run<double, decltype(weighted)> two(weighted, each);
  for (any_leaf_run<double>* r :
       {static_cast<any_leaf_run<double>*>(&one), static_cast<any_leaf_run<double>*>(&two)}) {
    fill_random(r->parameters.data(), r->parameters.size(), 1);
    fill_random(r->inputs[0].data(), r->inputs[0].size(), 2);
    fill_random(r->output_gradient.data(), r->output_gradient.size(), 3);
    r->forward();
    r->backward(false);
  }
  for (dim_t i = 0; i < one.output.size(); ++i)
    CHECK(one.output[i] == doctest::Approx(two.output[i]).epsilon(1e-12));
  for (dim_t i = 0; i < one.gradients.size(); ++i)
    CHECK(one.gradients[i] == doctest::Approx(two.gradients[i]).epsilon(1e-10));
  multihead_attention<4, 2, additive> dropping;
  dropping.dropout = 0.4;
  check_gradients(dropping, {shape{3, 2, 4}, shape{4, 3, 3}});
}

TEST_CASE("what multihead_attention keeps is linear in the length of the sequence") {
  const auto kept = [](const auto& m, dim_t length) {
    dim_t n = 0;
    for (const saved_spec& s : m.saved(shape_list{shape{length, 2, 64}})) n += s.extents.numel();
    return n;
  };
  const multihead_attention<64, 4> m;
  CHECK(kept(m, 4096) - kept(m, 2048) == 2048 * (kept(m, 257) - kept(m, 256)));
  CHECK(kept(m, 4096) < 4096 * 2 * 64 * 8);
  CHECK(kept(multihead_attention<64, 4, need_weights<true>>{}, 4096) > 4096 * 4096 * 8);
}

TEST_CASE("a query that ignores every key gets the bias and leaves no gradient") {
  leaf_run<double, multihead_attention<4, 2, padded>> run({}, {shape{3, 2, 4}, shape{2, 3}});
  fill_random(run.input.data(), run.input.size(), 1);
  fill_random(run.parameters.data(), run.parameters.size(), 2);
  fill_random(run.output_gradient.data(), run.output.size(), 3);
  for (dim_t s = 0; s < 3; ++s) run.booleans[1][s] = true;
  run.forward();
  run.backward(false);
  for (dim_t l = 0; l < 3; ++l)
    for (dim_t j = 0; j < 4; ++j) {
      CHECK(run.output[l * 8 + j] == run.parameter(3)[j]);
      CHECK(run.input_gradient[l * 8 + j] == 0);
      CHECK(run.input_gradient[l * 8 + 4 + j] != 0);
    }
}

TEST_CASE("one input is query, key and value; extents of run time give the same bits") {
  check_same_bits(multihead_attention<6, 2>{}, multihead_attention<dynamic, 2>{}, {shape{5, 2, 6}});
  check_same_bits(multihead_attention<6, 2, kdim<5>, vdim<7>>{},
                  multihead_attention<dynamic, 2, kdim<dynamic>, vdim<dynamic>>{},
                  {shape{5, 2, 6}, shape{4, 2, 5}, shape{4, 2, 7}});
  check_same_bits(multihead_attention<6, 2, is_causal<true>>{},
                  multihead_attention<6, 2, is_causal<true>>{}, {shape{5, 2, 6}});
  // One input with separate weights for query, key and value.
  check_gradients(multihead_attention<dynamic, 2, kdim<dynamic>>{}, shape{3, 2, 4});

  leaf_run<double, multihead_attention<6, 2>> one({}, shape{5, 2, 6});
  const shape each{5, 2, 6};
  leaf_run<double, multihead_attention<6, 2>> three({}, {each, each, each});
  fill_random(one.input.data(), one.input.size(), 1);
  for (std::size_t i = 0; i < 3; ++i)
    fill_random(three.inputs[i].data(), three.inputs[i].size(), 1);
  for (any_leaf_run<double>* r :
       {static_cast<any_leaf_run<double>*>(&one), static_cast<any_leaf_run<double>*>(&three)}) {
    fill_random(r->parameters.data(), r->parameters.size(), 2);
    r->forward();
  }
  for (dim_t i = 0; i < one.output.size(); ++i)
    CHECK(one.output[i] == doctest::Approx(three.output[i]).epsilon(1e-12));
}

TEST_CASE("multihead_attention takes an empty batch, and sequences of no length") {
  check_empty_batch(multihead_attention<4, 2>{}, shape{3, 0, 4});
  check_empty_batch(multihead_attention<4, 2, batch_first<true>, need_weights<true>>{},
                    {shape{0, 3, 4}, shape{0, 2, 4}, shape{0, 2, 4}});
  check_empty_batch(multihead_attention<4, 2, padded>{}, {shape{0, 2, 4}, shape{2, 0}});
  leaf_run<float, multihead_attention<4, 2>> no_keys({}, {shape{3, 4}, shape{0, 4}, shape{0, 4}});
  no_keys.forward();
  no_keys.backward(false);
  CHECK(no_keys.output[0] == 0);
}

TEST_CASE("multihead_attention begins with PyTorch's distributions") {
  leaf_run<double, multihead_attention<32, 4>> run({}, shape{1, 32});
  run.initialize(seed{3});
  const auto most = [&](std::size_t p) {
    double m = 0;
    for (dim_t i = 0; i < run.parameter_specs[p].extents.numel(); ++i)
      m = std::max(m, std::abs(run.parameter(p)[i]));
    return m;
  };
  const double xavier = std::sqrt(6. / (32 + 96)), kaiming = 1 / std::sqrt(32.);
  CHECK(most(0) <= xavier);
  CHECK(most(0) > 0.99 * xavier);
  CHECK(most(1) == 0);
  CHECK(most(2) <= kaiming);
  CHECK(most(2) > 0.98 * kaiming);
  CHECK(most(3) == 0);
}

TEST_CASE("multihead_attention says what is wrong with its inputs") {
  const auto says = [](const auto& m, const auto&... s) {
    return sentence_of(m.infer(shape_list{s...}));
  };
  const multihead_attention<6, 2> m;
  CHECK(says(m, shape{5, 2, 8}) ==
        "multihead_attention expects embed_dim = 6, got 8 (input [5, 2, 8])");
  CHECK(says(m, shape{6}) ==
        "multihead_attention expects inputs of 2 or 3 dimensions, got 1 (input [6])");
  CHECK(says(m, shape{5, 6}, shape{5, 6}) ==
        "multihead_attention expects 1 or 3 inputs and 0 masks, got 2 in all");
  CHECK(says(multihead_attention<6, 2, padded, boolean>{}, shape{5, 6}, shape{5}) ==
        "multihead_attention expects 1 or 3 inputs and 2 masks, got 2 in all");
  CHECK(says(lazy_multihead_attention<4>{}, shape{5, 2, 6}) ==
        "multihead_attention expects embed_dim to be a multiple of num_heads = 4, got 6 (input [5, "
        "2, 6])");
  CHECK(says(m, shape{5, 2, 6}, shape{4, 2, 5}, shape{4, 2, 6}) ==
        "multihead_attention expects kdim = 6, got 5 (input [4, 2, 5])");
  CHECK(says(multihead_attention<6, 2, vdim<7>>{}, shape{5, 2, 6}, shape{4, 2, 6},
             shape{4, 2, 6}) == "multihead_attention expects vdim = 7, got 6 (input [4, 2, 6])");
  CHECK(says(m, shape{5, 2, 6}, shape{4, 2, 6}, shape{3, 2, 6}) ==
        "multihead_attention expects a value for each key, got keys [4, 2, 6] and values [3, 2, "
        "6]");
  CHECK(says(m, shape{5, 2, 6}, shape{4, 3, 6}, shape{4, 3, 6}) ==
        "multihead_attention expects query and key of one batch, got [5, 2, 6] and [4, 3, 6]");
  CHECK(says(multihead_attention<6, 2, padded>{}, shape{5, 2, 6}, shape{5, 2}) ==
        "multihead_attention expects a key_padding_mask [2, 5], got [5, 2]");
  CHECK(says(multihead_attention<6, 2, boolean>{}, shape{5, 2, 6}, shape{2, 5, 5}) ==
        "multihead_attention expects an attn_mask [4, 5, 5], got [2, 5, 5]");
}

TEST_CASE("multihead_attention infers the shapes of its outputs") {
  const auto made = [](const auto& m, const auto&... s) { return m.infer(shape_list{s...}); };
  CHECK(made(multihead_attention<6, 2>{}, shape{dynamic, dynamic, 6}).output() ==
        shape{dynamic, dynamic, 6});
  const auto weighted = made(lazy_multihead_attention<2, kdim<lazy>, need_weights<true>>{},
                             shape{5, 2, 6}, shape{4, 2, 3}, shape{4, 2, 6});
  CHECK(weighted.output(0) == shape{5, 2, 6});
  CHECK(weighted.output(1) == shape{2, 5, 4});
  CHECK(made(multihead_attention<6, 2, padded, boolean, batch_first<true>>{}, shape{dynamic, 5, 6},
             shape{dynamic, 5}, shape{dynamic, 5, 5})
            .output() == shape{dynamic, 5, 6});
}

TEST_CASE("a lazy multihead_attention becomes what its inputs bring") {
  static_assert(lazy_multihead_attention<2>::is_lazy);
  static_assert(multihead_attention<6, 2, vdim<lazy>>::is_lazy);
  static_assert(std::is_same_v<decltype(lazy_multihead_attention<2>{}.become<shape{5, 2, 6}>()),
                               multihead_attention<6, 2>>);
  static_assert(
      std::is_same_v<decltype(lazy_multihead_attention<2, kdim<lazy>, bias<false>, vdim<lazy>>{}
                                  .become<shape{5, 2, 6}, shape{4, 2, 5}, shape{4, 2, dynamic}>()),
                     multihead_attention<6, 2, kdim<5>, bias<false>, vdim<dynamic>>>);
  static_assert(std::is_same_v<decltype(multihead_attention<6, 2, kdim<lazy>, padded>{}
                                            .become<shape{5, 2, 6}, shape{2, 5}>()),
                               multihead_attention<6, 2, kdim<6>, padded>>);
  // If the widths turn out equal, the weights are in one matrix.
  CHECK(multihead_attention<6, 2, kdim<6>>::is_packed);
  CHECK_FALSE(multihead_attention<6, 2, kdim<5>>::is_packed);
  lazy_multihead_attention<2> m;
  m.dropout = 0.25;
  CHECK(static_cast<double>(m.become<shape{5, 6}>().dropout) == 0.25);
}

TEST_CASE("multihead_attention takes its extents from a state") {
  multihead_attention<dynamic, 2, kdim<dynamic>, vdim<dynamic>> m;
  const shape state[] = {shape{6, 6}, shape{6, 5}, shape{6, 7}, shape{18}, shape{6, 6}, shape{6}};
  m.bind_state(state, {});
  const auto specs = m.parameters();
  REQUIRE(specs.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) CHECK(specs[i].extents == state[i]);
}

TEST_CASE("multihead_attention describes itself by PyTorch's names") {
  CHECK(described(multihead_attention<6, 2>{}) ==
        "embed_dim=6, num_heads=2, dropout=0, bias=true, batch_first=false");
  CHECK(
      described(lazy_multihead_attention<2, kdim<lazy>, padded, additive, need_weights<true>>{}) ==
      "embed_dim=lazy, num_heads=2, kdim=lazy, dropout=0, bias=true, batch_first=false, "
      "key_padding_mask=true, attn_mask=additive, need_weights=true");
  const shape each{4, 3, 6};
  CHECK(multihead_attention<6, 2>{}.multiply_adds(shape_list{each}, shape_list{each}) ==
        12 * 6 * 6 * 4 + 2 * 3 * 4 * 4 * 6);
}
