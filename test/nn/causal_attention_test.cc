#include "ikebana/nn/causal_attention.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/deploy/generate.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/rotary_positions.hpp"
#include "ikebana/nn/softmax.hpp"
#include "ikebana/ops.hpp"
#include "layers.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::dynamic;
using ike::shape;

namespace {

constexpr dim_t length = 7, width = 12, heads = 3, symbols = 5;

/// The same by the operations of formulas.
constexpr auto formula = ike::graph([](auto q, auto k, auto v) {
  auto split = [](auto y) { return ike::reshape<-1, length, heads, width / heads>(y); };
  auto scores = ike::einsum<"nqhd,nkhd->nhqk">(split(q), split(k)) / 2.0;
  auto at = ike::arange_like<1>(q);
  auto weights = ike::softmax<>{}(scores + ike::where(at > ike::unsqueeze<1>(at), -1e9, 0));
  return ike::reshape<-1, length, width>(ike::einsum<"nhqk,nkhd->nqhd">(weights, split(v)));
});

template <bool Cached>
constexpr auto attend() {
  if constexpr (Cached)
    return ike::lazy_causal_attention<heads, ike::kv_cache<1, 16>>{};
  else
    return ike::lazy_causal_attention<heads>{};
}
template <bool Cached>
constexpr auto rotate() {
  if constexpr (Cached)
    return ike::rotary_positions<heads, ike::stateful<1>>{};
  else
    return ike::rotary_positions<heads>{};
}

/// Indices [N, L] -> logits [N L, symbols].
template <bool Cached>
constexpr auto language = ike::graph([](auto text) {
  auto x = "tokens"_m(ike::embedding<symbols, width>{}, text);
  auto q = "q_at"_m(rotate<Cached>(), "q"_m(ike::lazy_linear<width>{}, x));
  auto k = "k_at"_m(rotate<Cached>(), "k"_m(ike::lazy_linear<width>{}, x));
  auto v = "v"_m(ike::lazy_linear<width>{}, x);
  auto h = x + "attention"_m(attend<Cached>(), q, k, v);
  return "head"_m(ike::lazy_linear<symbols>{}, h);
});

template <class T>
auto reference() {
  auto model = ike::initialize<T, shape{1, dynamic}>(language<false>, ike::seed{4}, shape{1, 7});
  for (T& x : model.parameters()) x *= 2;
  return model;
}
template <class T>
auto cached() {
  auto from = reference<T>();
  auto model = ike::initialize<T, shape{1, dynamic}>(language<true>, ike::seed{9}, shape{1, 7});
  ike::load_state_dict(model, ike::get_state_dict(from));
  return model;
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const ike::error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

const std::vector<std::int64_t> prompt{1, 4, 2};

}  // namespace

TEST_CASE_TEMPLATE("causal_attention is its formula, forward and backward", T, float, double) {
  constexpr shape in{2, length, width};
  constexpr auto net = ike::graph([](auto q, auto k, auto v) {
    return "attention"_m(ike::lazy_causal_attention<heads>{}, q, k, v);
  });
  auto a = ike::initialize<T, in, in, in>(net, ike::seed{1});
  auto b = ike::initialize<T, in, in, in>(formula, ike::seed{1});
  const auto q = ike::uniform<T, in>(ike::seed{2}), k = ike::uniform<T, in>(ike::seed{3}),
             v = ike::uniform<T, in>(ike::seed{4}), dy = ike::uniform<T, in>(ike::seed{5});
  const auto y = a(q, k, v), z = b(q, k, v);
  const double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-12;
  for (dim_t i = 0; i < y.size(); ++i)
    CHECK(std::abs(static_cast<double>(y[i] - z[i])) <= tolerance);
  ike::tensor<T, in> da[3]{}, db[3]{};
  a.backward(dy, da[0], da[1], da[2]);
  b.backward(dy, db[0], db[1], db[2]);
  for (std::size_t j = 0; j < 3; ++j)
    for (dim_t i = 0; i < y.size(); ++i)
      CHECK(std::abs(static_cast<double>(da[j][i] - db[j][i])) <= tolerance);
}

TEST_CASE_TEMPLATE("rotary_positions rotates pairs of features, and products see distances alone",
                   T, float, double) {
  leaf_run<T, ike::rotary_positions<2>> run({}, shape{2, 5, 8});
  fill_random(run.input.data(), run.in.numel(), 3);
  run.forward();
  const double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-12;
  for (dim_t i = 0; i < run.in.numel(); i += 2) {
    const dim_t l = i / 8 % 5, pair = i % 4;
    const double angle = static_cast<double>(l) * std::pow(10000., -static_cast<double>(pair) / 4);
    const double x = static_cast<double>(run.input[i]), y = static_cast<double>(run.input[i + 1]);
    CHECK(std::abs(static_cast<double>(run.output[i]) - x * std::cos(angle) +
                   y * std::sin(angle)) <= tolerance);
    CHECK(std::abs(static_cast<double>(run.output[i + 1]) - y * std::cos(angle) -
                   x * std::sin(angle)) <= tolerance);
  }
  CHECK(sentence_of(ike::rotary_positions<2>{}.infer(shape{1, 2, 6})) ==
        "rotary_positions expects a number of features that 4 (2 num_heads) divides, got 6 (input "
        "[1, 2, 6])");
}

TEST_CASE("causal_attention and rotary_positions compute what PyTorch recorded") {
  compare_layer("written", "causal_attention_1", ike::causal_attention<3, 1>{});
  compare_layer("written", "causal_attention_3", ike::causal_attention<12, 3>{});
  compare_layer("written", "causal_attention_2", ike::causal_attention<4, 2>{});
  CHECK(layers_not_compared("written", "causal_attention").empty());
  compare_layer("written", "rotary_positions", ike::rotary_positions<2>{});
  compare_layer("written", "rotary_positions_batch", ike::rotary_positions<2>{});
  compare_layer("written", "rotary_positions_base", ike::rotary_positions<1>{.base = 100});
  CHECK(layers_not_compared("written", "rotary_positions").empty());
}

TEST_CASE("gradients of attention with rotary positions agree with differences") {
  constexpr shape in{2, 3, width};
  constexpr auto net = ike::graph([](auto x) {
    auto q = "at"_m(ike::rotary_positions<heads>{}, x);
    return "attention"_m(ike::lazy_causal_attention<heads, ike::kv_cache<2, 4>>{}, q, q, x);
  });
  const auto x = ike::uniform<double, in>(ike::seed{2});
  CHECK(ike::gradient_check(net, x).largest < 1e-6);
}

TEST_CASE_TEMPLATE("with a cache, blocks of any length give the results of the whole sequence", T,
                   float, double) {
  const auto whole = ike::freeze(reference<T>());
  auto at_once = whole.lane(shape{1, 16});
  ike::tensor<std::int64_t, shape{1, 16}> text;
  for (dim_t i = 0; i < 16; ++i) text[i] = (i * i + 3 * i) % symbols;
  const auto expected = whole(at_once, text);
  const auto net = ike::freeze(cached<T>());
  auto lane = net.lane(shape{1, 16});
  for (const dim_t size : {dim_t{1}, dim_t{3}, dim_t{16}}) {
    lane.reset();
    const long before = allocation_count_here;
    long allocations = 0;
    for (dim_t first = 0; first < 16; first += size) {
      const dim_t n = std::min(size, 16 - first);
      const ike::tensor_view<const std::int64_t, shape{1, dynamic}> part(text.data() + first,
                                                                         shape{1, n});
      const auto y = net(lane, part);
      allocations = allocation_count_here - before;
      for (dim_t i = 0; i < n * symbols; ++i)
        CHECK(std::abs(static_cast<double>(y.data()[i] - expected.data()[first * symbols + i])) <=
              (sizeof(T) == 4 ? 1e-4 : 1e-12));
    }
    if (size == 1) CHECK(allocations == 0);
  }
  const ike::tensor<std::int64_t, shape{1, 1}> one{};
  CHECK(error_of([&] {
          net(lane, one);
        }).find("causal_attention keeps at most 16 steps of a sequence, got 17") !=
        std::string::npos);
}

TEST_CASE("generate takes the most probable tokens, with a cache or without") {
  const auto whole = ike::freeze(reference<double>());
  const auto net = ike::freeze(cached<double>());
  auto slow = whole.lane(shape{1, 16});
  auto fast = net.lane(shape{1, 16});
  const auto text = ike::generate(whole, slow, prompt, {.max_new_tokens = 10});
  CHECK(text.size() == 13);
  CHECK(std::equal(prompt.begin(), prompt.end(), text.begin()));
  CHECK(ike::generate(net, fast, prompt, {.max_new_tokens = 10}) == text);
  CHECK(ike::generate(net, fast, prompt, {.max_new_tokens = 10}) == text);
  // A network of sequences of one length gets them padded.
  auto made = ike::initialize<double, shape{dynamic, 13}>(language<false>, ike::seed{9});
  ike::load_state_dict(made, ike::get_state_dict(reference<double>()));
  const auto fixed = ike::freeze(made);
  auto lane = fixed.lane(shape{1, 13});
  CHECK(ike::generate(fixed, lane, prompt, {.max_new_tokens = 10}) == text);
  // Among one token, a draw has no choice.
  CHECK(ike::generate(net, fast, prompt, {.max_new_tokens = 10, .do_sample = true, .top_k = 1}) ==
        text);
  CHECK(ike::generate(net, fast, prompt,
                      {.max_new_tokens = 10, .do_sample = true, .top_p = 1e-9}) == text);
  const auto ended =
      ike::generate(net, fast, prompt, {.max_new_tokens = 10, .eos_token_id = text[4]});
  CHECK(ended.back() == text[4]);
  CHECK(ended.size() <= 5);
}

TEST_CASE("generate draws tokens by their probabilities, the same ones for a seed") {
  const auto net = ike::freeze(cached<double>());
  auto lane = net.lane(shape{1, 16});
  const ike::tensor_view<const std::int64_t, shape{1, 3}> x(prompt.data(), shape{1, 3});
  lane.reset();
  const auto logits = net(lane, x);
  std::vector<double> p(symbols);
  double sum = 0;
  for (std::size_t i = 0; i < symbols; ++i)
    sum += p[i] = std::exp(logits.data()[2 * symbols + static_cast<dim_t>(i)] / 2);
  std::vector<double> drawn(symbols);
  constexpr int draws = 4000;
  for (std::uint64_t s = 0; s < draws; ++s)
    drawn[static_cast<std::size_t>(
        ike::generate(net, lane, prompt,
                      {.max_new_tokens = 1, .do_sample = true, .temperature = 2, .seed = {s}})
            .back())] += 1.0 / draws;
  for (std::size_t i = 0; i < symbols; ++i) CHECK(std::abs(drawn[i] - p[i] / sum) < 0.03);
  const ike::generate_options o{.max_new_tokens = 12, .do_sample = true, .seed = {3}};
  CHECK(ike::generate(net, lane, prompt, o) == ike::generate(net, lane, prompt, o));
}

TEST_CASE("with enough beams generate finds the most probable sequence") {
  auto model =
      ike::initialize<double, shape{1, dynamic}>(language<true>, ike::seed{1}, shape{1, 7});
  for (double& x : model.parameters()) x *= 1.5;
  const auto net = ike::freeze(model);
  auto lane = net.lane(shape{1, 16});
  int better_than_greedy = 0;
  for (std::int64_t p = 0; p < symbols; ++p)
    for (std::int64_t q = 0; q < symbols; ++q) {
      const std::vector<std::int64_t> start{p, q, 2};
      double best = -1e9;
      std::vector<std::int64_t> expected;
      for (std::int64_t a = 0; a < symbols; ++a)
        for (std::int64_t b = 0; b < symbols; ++b)
          for (std::int64_t c = 0; c < symbols; ++c) {
            const std::vector<std::int64_t> text{p, q, 2, a, b, c};
            const ike::tensor_view<const std::int64_t, shape{1, 6}> x(text.data(), shape{1, 6});
            lane.reset();
            const auto logits = net(lane, x);
            double score = 0;
            for (dim_t l = 2; l < 5; ++l) {
              double sum = 0;
              for (dim_t i = 0; i < symbols; ++i) sum += std::exp(logits.data()[l * symbols + i]);
              score += logits.data()[l * symbols + x[l + 1]] - std::log(sum);
            }
            if (score > best) {
              best = score;
              expected = text;
            }
          }
      CHECK(ike::generate(net, lane, start, {.max_new_tokens = 3, .num_beams = 25}) == expected);
      better_than_greedy +=
          ike::generate(net, lane, start, {.max_new_tokens = 3}) != expected ? 1 : 0;
    }
  CHECK(better_than_greedy > 0);
  CHECK(error_of([&] { ike::generate(net, lane, {}); }) ==
        "generate needs a prompt of at least one token");
  CHECK(error_of([&] { ike::generate(net, lane, prompt, {.do_sample = true, .num_beams = 2}); }) ==
        "generate needs num_beams = 1 to sample");
}
