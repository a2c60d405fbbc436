#include "ikebana/nn/flatten.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "ikebana/io/safetensors.hpp"
#include "leaf_run.hpp"

using namespace ikebana;

TEST_CASE("flatten gives the shapes that PyTorch recorded") {
  const state_dict dict = load("test/data/modules_f32.safetensors");
  std::set<std::string> compared;
  const auto compare = [&](const std::string& name, const auto& m) {
    CHECK(m.infer(dict.at(name + "/x").extents).output() == dict.at(name + "/y").extents);
    compared.insert(name);
  };
  compare("flatten_default", flatten{});
  compare("flatten_2d", flatten{});
  compare("flatten_all", flatten<start_dim<0>>{});
  compare("flatten_middle", flatten<start_dim<1>, end_dim<2>>{});
  compare("flatten_tail", flatten<start_dim<-2>>{});
  std::set<std::string> recorded;
  for (const auto& [key, value] : dict.metadata())
    if (key.starts_with("flatten_")) recorded.insert(key);
  CHECK(compared == recorded);
}

TEST_CASE("flatten keeps what only run time knows") {
  CHECK(flatten{}.infer(shape{dynamic, 3, 4, 5}).output() == shape{dynamic, 60});
  CHECK(flatten{}.infer(shape{7, 3, dynamic, 5}).output() == shape{7, dynamic});
  CHECK(flatten{}.infer(shape{0, 3, 4}).output() == shape{0, 12});
  CHECK(flatten<start_dim<0>>{}.infer(shape{}).output() == shape{1});
}

TEST_CASE("flatten says what is wrong with its input") {
  CHECK(sentence_of(flatten{}.infer(shape{5})) ==
        "flatten expects start_dim within 1 dimensions, got 1 (input [5])");
  CHECK(sentence_of(flatten<end_dim<4>>{}.infer(shape{2, 3})) ==
        "flatten expects end_dim within 2 dimensions, got 4 (input [2, 3])");
  CHECK(sentence_of(flatten<start_dim<2>, end_dim<1>>{}.infer(shape{2, 3, 4})) ==
        "flatten expects start_dim of at most end_dim = 1, got 2 (input [2, 3, 4])");
  CHECK(sentence_of(flatten<start_dim<-2>>{}.infer(shape{3})) ==
        "flatten expects start_dim within 1 dimensions, got -2 (input [3])");
  CHECK(described(flatten{}) == "start_dim=1, end_dim=-1");
}
