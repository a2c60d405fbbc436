#include "ikebana/nn/embedding.hpp"

#include <doctest/doctest.h>

#include <algorithm>
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

TEST_CASE("an embedding of no indices has a gradient of zero") {
  check_empty_batch(embedding<3, 2>{}, {0, 5});
  check_empty_batch(embedding<3, 2, scale_grad_by_freq<true>>{}, {0});
}

TEST_CASE("an embedding describes itself by PyTorch's names") {
  CHECK(described(embedding<9, 4>{}) == "num_embeddings=9, embedding_dim=4");
  CHECK(described(embedding<9, 4, padding_idx<-1>, scale_grad_by_freq<true>>{}) ==
        "num_embeddings=9, embedding_dim=4, padding_idx=8, scale_grad_by_freq=true");
}
