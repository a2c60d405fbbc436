#include "ikebana/model/init_parameters.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ikebana/ikebana.hpp"
#include "ikebana/module/path_pattern.hpp"
#include "ikebana/nn/init.hpp"

namespace ike = ikebana;
using namespace ike::literals;

namespace {
constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<8>{}, "tanh"_m = ike::tanh{},
                                     "head"_m = ike::lazy_linear<3>{});
constexpr ike::shape rows{4, 5};
}  // namespace

TEST_CASE("a star in a pattern stands for any characters") {
  using ike::matches_pattern;
  CHECK(matches_pattern("fc.bias", "*.bias"));
  CHECK(matches_pattern("a.b.bias", "*.bias"));
  CHECK(matches_pattern("a.b.bias", "a*"));
  CHECK(matches_pattern("a.b.bias", "a*b*as"));
  CHECK(matches_pattern("aaab", "*aab"));
  CHECK(matches_pattern("fc", "fc"));
  CHECK(matches_pattern("fc", "*fc**"));
  CHECK(matches_pattern("", "*"));
  CHECK(!matches_pattern("fc.bias", "bias"));
  CHECK(!matches_pattern("fc.bias", "fc"));
  CHECK(!matches_pattern("fc.bias", "*.weight"));
  CHECK(!matches_pattern("abab", "*abc"));
  CHECK(!matches_pattern("", "a"));
}

TEST_CASE("parameters are initialised by the patterns that their paths match") {
  auto model = ike::initialize<float, rows>(net, ike::seed{1});
  const auto old_bias = model.snapshot();
  std::vector<ike::dim_t> sizes;
  ike::init_parameters<"*.weight">(model, ike::seed{7}, [&](auto w, ike::seed s) {
    ike::init::normal(w, s);
    sizes.push_back(w.size());
  });
  CHECK(sizes == std::vector<ike::dim_t>{40, 24});
  // Each has a seed of its own, which depends on the path alone.
  CHECK(model["fc.weight"_s][0] != model["head.weight"_s][0]);
  auto alone = ike::zeros<float, ike::shape{8, 5}>();
  ike::init::normal(alone, ike::seed{7}.at("fc.weight"));
  CHECK(std::ranges::equal(alone, model["fc.weight"_s]));
  // Others stay.
  CHECK(
      std::ranges::equal(old_bias.at("fc.bias").view<float, ike::shape{8}>(), model["fc.bias"_s]));
  int calls = 0;
  ike::init_parameters<"head.b*", "*.bias">(model, ike::seed{7}, [&](auto b, ike::seed) {
    ike::init::ones(b);
    ++calls;
  });
  CHECK(calls == 2);
  CHECK(model["fc.bias"_s][0] == 1);
}

TEST_CASE("an evaluation after init_parameters sees the new weights") {
  auto model = ike::initialize<float, rows>(net, ike::seed{1});
  model.eval();
  const auto x = ike::uniform<float, rows>(ike::seed{2});
  model(x);
  model(x);
  ike::init_parameters<"*">(model, ike::seed{1}, [](auto p, ike::seed) { ike::init::zeros(p); });
  const auto y = model(x);
  CHECK(std::ranges::all_of(y, [](float v) { return v == 0; }));
}
