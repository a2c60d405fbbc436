#include "ikebana/nn/embedding_bag.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "layers.hpp"

using namespace ikebana;
using namespace ikebana::literals;

TEST_CASE("embedding_bag computes what PyTorch recorded") {
  const auto compare_bag = [](const std::string& name, const auto& m) {
    compare_layer("embedding_bag", name, m);
  };
  compare_bag("bag_mean", embedding_bag<7, 5>{});
  compare_bag("bag_sum", embedding_bag<7, 5, mode<"sum">>{});
  compare_bag("bag_max", embedding_bag<7, 5, mode<"max">>{});
  compare_bag("bag_mean_padding", embedding_bag<5, 19, padding_idx<2>>{});
  compare_bag("bag_sum_padding", embedding_bag<5, 19, mode<"sum">, padding_idx<2>>{});
  compare_bag("bag_max_padding", embedding_bag<5, 19, mode<"max">, padding_idx<-3>>{});
  compare_bag("bag_single", embedding_bag<6, 3>{});
  using begins = offsets<true>;
  using weighted = per_sample_weights<true>;
  compare_bag("bag_mean_offsets", embedding_bag<7, 5, padding_idx<3>, begins>{});
  compare_bag("bag_sum_offsets", embedding_bag<7, 5, mode<"sum">, padding_idx<3>, begins>{});
  compare_bag("bag_max_offsets", embedding_bag<7, 5, mode<"max">, padding_idx<3>, begins>{});
  compare_bag("bag_weighted", embedding_bag<7, 5, mode<"sum">, padding_idx<3>, weighted>{});
  compare_bag("bag_weighted_offsets", embedding_bag<7, 5, mode<"sum">, begins, weighted>{});
  using by_frequency = scale_grad_by_freq<true>;
  compare_bag("bag_mean_frequency", embedding_bag<4, 5, by_frequency>{});
  compare_bag("bag_sum_frequency", embedding_bag<4, 5, mode<"sum">, by_frequency>{});
  compare_bag("bag_mean_max_norm", embedding_bag<7, 5>{.max_norm = 0.6});
  compare_bag("bag_max_max_norm", embedding_bag<7, 5, mode<"max">>{.max_norm = 0.6});
  compare_bag("bag_weighted_max_norm", embedding_bag<7, 5, mode<"sum">, weighted>{.max_norm = 0.5});
  CHECK(layers_not_compared("embedding_bag").empty());
}

TEST_CASE("a bag's max_norm in evaluation gives what training gives, and leaves the rows") {
  const auto check = [](const auto& m) {
    auto net = initialize<double, shape{2, 3}>(m, seed{1});
    const auto x = tensor_of<std::int64_t, shape{2, 3}>({4, 0, 1, 2, 2, 3});
    const auto before = net["weight"_s][0];
    net.eval();
    const tensor evaluated(net(x));
    CHECK(net["weight"_s][0] == before);
    net.train();
    const auto y = net(x);
    CHECK(net["weight"_s][0] != before);
    for (dim_t i = 0; i < y.size(); ++i) CHECK(y[i] == doctest::Approx(evaluated[i]));
  };
  check(embedding_bag<5, 3>{.max_norm = 0.2});
  check(embedding_bag<5, 3, mode<"max">>{.max_norm = 0.2});
  check(embedding_bag<5, 3, mode<"sum">>{.max_norm = 0.2, .norm_type = 1});
}

TEST_CASE("an index that is no row is refused before anything runs") {
  auto m = initialize<float, shape{2, 3}>(sequential("bag"_m = embedding_bag<4, 2>{}), seed{1});
  auto index = zeros<std::int64_t, shape{2, 3}>();
  index(1, 2) = 4;
  CHECK_THROWS_WITH_AS(m(index), "bag: embedding expects indices below 4, got 4", error);
  index(1, 2) = -1;
  CHECK_THROWS_AS(m(index), error);
}

TEST_CASE("offsets that are none are refused before anything runs") {
  auto m = initialize<float, shape{4}, shape{2}>(
      graph([](auto index, auto begins) {
        return "bag"_m(embedding_bag<4, 2, offsets<true>>{}, index, begins);
      }),
      seed{1});
  const auto index = zeros<std::int64_t, shape{4}>();
  const auto refuses = [&](std::int64_t a, std::int64_t b) {
    const auto begins = tensor_of<std::int64_t, shape{2}>({a, b});
    try {
      m(index, begins);
    } catch (const error& e) {
      return std::string_view(e.what()).substr(0, 41) ==
             "bag: embedding_bag expects offsets from 0";
    }
    return false;
  };
  CHECK(refuses(1, 2));
  CHECK(refuses(0, 5));
  CHECK(refuses(0, -1));
  CHECK(!refuses(0, 4));
  CHECK(sentence_of(embedding_bag<4, 2, mode<"sum">, per_sample_weights<true>>{}.infer(
            shape_list{shape{2, 3}, shape{2, 2}})) ==
        "embedding_bag expects a weight for each index, [2, 3], got [2, 2]");
}

TEST_CASE("embedding_bag of no bags, of bags of nothing, and what it says") {
  check_empty_batch(embedding_bag<4, 2>{}, {0, 3});
  leaf_run<float, embedding_bag<4, 2, mode<"max">>> run({}, {2, 0});
  run.forward();
  for (float y : run.output.span()) CHECK(y == 0);
  CHECK(sentence_of(embedding_bag<4, 2>{}.infer(shape{3})) ==
        "embedding_bag expects indices of 2 dimensions, got 1 (input [3])");
  CHECK(described(embedding_bag<4, 2, padding_idx<-1>>{}) ==
        "num_embeddings=4, embedding_dim=2, mode=mean, padding_idx=3");
  CHECK(embedding_bag<4, 2>{}.infer(shape{dynamic, 3}).output() == shape{dynamic, 2});
}
