#include "ikebana/nn/embedding.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "layers.hpp"

using namespace ikebana;
using namespace ikebana::literals;

TEST_CASE("embedding computes what PyTorch recorded") {
  const auto compare = [](const std::string& name, const auto& m) {
    compare_layer("embedding", name, m);
  };
  compare("embedding", embedding<7, 5>{});
  compare("embedding_one_index", embedding<3, 19>{});
  compare("embedding_sequence", embedding<11, 1>{});
  compare("embedding_3d", embedding<5, 17>{});
  compare("embedding_padding", embedding<5, 3, padding_idx<2>>{});
  compare("embedding_padding_from_the_end", embedding<4, 6, padding_idx<-1>>{});
  compare("embedding_frequency", embedding<6, 4, scale_grad_by_freq<true>>{});
  compare("embedding_frequency_padding",
          embedding<4, 9, scale_grad_by_freq<true>, padding_idx<1>>{});
  compare("embedding_max_norm", embedding<6, 9>{.max_norm = 1.0});
  compare_layer("embedding", "embedding_max_norm_eval", embedding<6, 9>{.max_norm = 1.0}, false);
  compare("embedding_max_norm_inf",
          embedding<6, 9>{.max_norm = 0.4, .norm_type = std::numeric_limits<double>::infinity()});
  compare("embedding_max_norm_p", embedding<6, 9>{.max_norm = 2.0, .norm_type = 1.5});
  CHECK(layers_not_compared("embedding").empty());
}

TEST_CASE("an embedding starts normal, with zeros for what stands for no word") {
  constexpr embedding<5, 3, padding_idx<-2>> m;
  const parameter_spec weight = m.parameters()[0];
  CHECK(weight.extents == shape{5, 3});
  CHECK(weight.init.what == initializer::kind::normal);
  float x[15];
  weight.init.fill(random_stream{seed{1}, 2}, x, weight.extents);
  for (int i = 0; i < 15; ++i) CHECK((x[i] == 0) == (i / 3 == 3));
  CHECK(embedding<5, 3>{}.parameters()[0].init.zero_row == -1);
}

TEST_CASE("an embedding refuses an index that has no row before anything is written") {
  auto net = initialize<float, shape{3}>(sequential("words"_m = embedding<4, 2>{}), seed{1});
  const auto before = net(tensor_of<std::int64_t, shape{3}>({0, 2, 3}));
  const std::vector<float> kept(before.begin(), before.end());
  const auto refused = [&](std::int64_t index) -> std::string {
    const auto x = tensor_of<std::int64_t, shape{3}>({0, 2, index});
    try {
      net(x);
    } catch (const error& e) {
      CHECK(std::equal(kept.begin(), kept.end(), net.output().begin()));
      return e.what();
    }
    return "";
  };
  CHECK(refused(3) == "");
  CHECK(refused(4) == "words: embedding expects indices below 4, got 4");
  CHECK(refused(-1) == "words: embedding expects indices of at least 0, got -1");
}

TEST_CASE("an embedding takes indices of any shape") {
  constexpr embedding<9, 4> m;
  CHECK(m.infer(shape{}).output() == shape{4});
  CHECK(m.infer(shape{dynamic, 5}).output() == shape{dynamic, 5, 4});
  CHECK(sentence_of(m.infer(shape{1, 1, 1, 1, 1, 1, 1, 1})) ==
        "embedding expects an input of at most 7 dimensions, got 8 (input [1, 1, 1, 1, 1, 1, 1, "
        "1])");
  CHECK(m.input_kind(0, 1) == element_kind::index);
}

TEST_CASE("the gradients of an embedding are those of its forward") {
  const auto indices = [](any_leaf_run<double>& run) {
    for (dim_t i = 0; i < run.indices[0].size(); ++i) run.indices[0][i] = i * i % 5;
  };
  check_gradients(embedding<6, 3>{}, shape_list{shape{2, 4}}, true, indices);
}

TEST_CASE("max_norm scales the selected rows of the parameter in training alone") {
  auto net = initialize<float, shape{2}>(embedding<3, 4>{.max_norm = 0.5}, seed{1});
  for (dim_t i = 0; i < 12; ++i) net["weight"_s][i] = static_cast<float>(i / 4 + 1);
  const auto x = tensor_of<std::int64_t, shape{2}>({2, 1});
  net.eval();
  const tensor evaluated(net(x));
  CHECK(net["weight"_s][11] == 3);
  net.train();
  const auto y = net(x);
  for (dim_t i = 0; i < 8; ++i) {
    CHECK(y[i] == doctest::Approx(0.25));
    CHECK(evaluated[i] == doctest::Approx(0.25));
  }
  CHECK(net["weight"_s][0] == 1);
  CHECK(net["weight"_s][4] == y[4]);
  CHECK(net["weight"_s][11] == y[0]);
}

TEST_CASE("an embedding of no indices has a gradient of zero") {
  check_empty_batch(embedding<3, 2>{}, {0, 5});
  check_empty_batch(embedding<3, 2, scale_grad_by_freq<true>>{}, {0});
}

TEST_CASE("an embedding describes itself by PyTorch's names") {
  CHECK(described(embedding<9, 4>{}) == "num_embeddings=9, embedding_dim=4");
  CHECK(described(embedding<9, 4, padding_idx<-1>, scale_grad_by_freq<true>>{}) ==
        "num_embeddings=9, embedding_dim=4, padding_idx=8, scale_grad_by_freq=true");
  CHECK(described(embedding<9, 4>{.max_norm = 1.5}) ==
        "num_embeddings=9, embedding_dim=4, max_norm=1.5, norm_type=2");
}
