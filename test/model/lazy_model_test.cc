#include "ikebana/model/lazy_model.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "relu1"_m = ike::relu{},
                                     "fc2"_m = ike::lazy_linear<1>{}, "relu2"_m = ike::relu{});

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const ike::shape_error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("parameters come into being at the first call, as those of initialize") {
  ike::lazy_model holder{net, ike::seed{42}};
  CHECK(holder.has_uninitialized_params());
  const auto x = ike::ones<double, shape{10, 10}>();
  const auto y = holder(x);
  CHECK_FALSE(holder.has_uninitialized_params());
  auto model = ike::initialize<double, shape{10, 10}>(net, ike::seed{42});
  const auto z = model(x);
  REQUIRE(y.extents() == z.extents());
  CHECK(std::memcmp(y.data(), z.data(), sizeof(double) * 10) == 0);
}

TEST_CASE("the batch may change after the first call, the columns may not") {
  ike::lazy_model holder{net, ike::seed{42}};
  CHECK(holder(ike::ones<float, shape{3, 4}>()).extents() == shape{3, 1});
  CHECK(holder(ike::ones<float, shape{5, 4}>()).extents() == shape{5, 1});
  CHECK(holder(ike::ones<float, shape{dynamic, 4}>(7)).extents() == shape{7, 1});
  const auto wrong = ike::ones<float, shape{3, 5}>();
  CHECK(message_of([&] { holder(wrong); }) ==
        "fc1: linear expects in_features = 4, got 5 (input [3, 5])");
  const auto other_type = ike::ones<double, shape{3, 4}>();
  CHECK(message_of([&] { holder(other_type); }) ==
        "the model was resolved for another element type, or with other dimensions static; got an "
        "input [3, 4]");
  CHECK(holder(ike::ones<float, shape{3, 4}>()).extents() == shape{3, 1});
}

TEST_CASE("columns that only run time knows are taken from the first input") {
  ike::lazy_model holder{net, ike::seed{42}};
  constexpr shape table{dynamic, dynamic};
  CHECK(holder(ike::ones<float, table>(3, 4)).extents() == shape{3, 1});
  CHECK(holder(ike::ones<float, table>(8, 4)).extents() == shape{8, 1});
  const auto wrong = ike::ones<float, table>(3, 5);
  CHECK(message_of([&] { holder(wrong); }) ==
        "fc1: linear expects in_features = 4, got 5 (input [3, 5])");
}

TEST_CASE("a first input that fails leaves the network unresolved") {
  ike::lazy_model holder{ike::sequential("fc"_m = ike::linear<4, 2>{}), ike::seed{1}};
  constexpr shape table{dynamic, dynamic};
  const auto wrong = ike::ones<float, table>(3, 5);
  CHECK(message_of([&] { holder(wrong); }) ==
        "fc: linear expects in_features = 4, got 5 (input [3, 5])");
  CHECK(holder(ike::ones<float, table>(3, 4)).extents() == shape{3, 2});
}

TEST_CASE("the model within can be trained") {
  ike::lazy_model holder{net, ike::seed{42}};
  const auto x = ike::uniform<float, shape{8, 4}>(ike::seed{1});
  const auto t = ike::ones<float, shape{8, 1}>();
  auto& model = holder.model_of(x);
  ike::sgd optimizer{model, {.lr = 0.1}};
  const float first = model.train_step(x, t, ike::mse_loss{}, optimizer);
  float last = first;
  for (int i = 0; i < 50; ++i) last = model.train_step(x, t, ike::mse_loss{}, optimizer);
  CHECK(last < first / 2);
}
