#include "ikebana/model/lazy_model.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <type_traits>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/dropout.hpp"
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
  } catch (const ike::error& e) {
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
        "the model was resolved for float32, got inputs of float64");
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

TEST_CASE("which extents are static may differ from call to call") {
  ike::lazy_model holder{net, ike::seed{42}};
  const auto x = ike::uniform<float, shape{3, 4}>(ike::seed{1});
  const ike::tensor<float, shape{3, 1}> first{holder(x)};
  ike::tensor<float, shape{dynamic, dynamic}> table(shape{3, 4});
  std::memcpy(table.data(), x.data(), sizeof(float) * 12);
  // What it computes is not what is left of another call.
  const auto other = holder(ike::uniform<float, shape{3, 4}>(ike::seed{2}));
  CHECK(std::memcmp(other.data(), first.data(), sizeof(float) * 3) != 0);
  const auto again = holder(table);
  static_assert(decltype(again)::static_shape == shape{dynamic, 1});
  CHECK(again.extents() == shape{3, 1});
  CHECK(std::memcmp(again.data(), first.data(), sizeof(float) * 3) == 0);
  CHECK(message_of([&] { holder.model_of(table); }) ==
        "the model was resolved for inputs with other extents static; got an input [3, 4]");
  const auto wrong = ike::ones<float, shape{dynamic, dynamic}>(2, 9);
  CHECK(message_of([&] { holder(wrong); }) ==
        "fc1: linear expects in_features = 4, got 9 (input [2, 9])");
}

TEST_CASE("the element type is the inputs', or is chosen before the first call") {
  ike::lazy_model holder{net, ike::seed{42}, ike::element_type<double>{}};
  static_assert(std::is_same_v<decltype(holder),
                               ike::lazy_model<std::remove_const_t<decltype(net)>, double>>);
  for (const auto& e : ike::get_state_dict(holder)) CHECK(e.type == ike::dtype::float64);
  const auto y = holder(ike::ones<double, shape{3, 4}>());
  static_assert(std::is_same_v<decltype(y)::value_type, double>);
  for (const auto& e : ike::get_state_dict(holder)) CHECK(e.type == ike::dtype::float64);
}

TEST_CASE("parameters are initialized without a forward") {
  ike::lazy_model holder{net, ike::seed{42}};
  int forwards = 0;
  holder.register_forward_hook("", [&](const ike::module_call&) { ++forwards; });
  const auto x = ike::uniform<float, shape{3, 4}>(ike::seed{1});
  auto& model = holder.initialize_parameters(x);
  CHECK_FALSE(holder.has_uninitialized_params());
  CHECK(forwards == 0);
  CHECK(model["fc1.weight"_s].extents() == shape{10, 4});
  CHECK(&holder.initialize_parameters(x) == &model);  // Once.
  CHECK(holder(x).data() == model.output().data());
  CHECK(forwards == 1);

  // The same without a holder: a model for inputs like x.
  auto alone = ike::initialize_parameters(net, ike::seed{42}, x);
  static_assert(decltype(alone(x))::static_shape == shape{dynamic, 1});
  CHECK(std::memcmp(alone(x).data(), holder(x).data(), sizeof(float) * 3) == 0);
  CHECK(alone(ike::ones<float, shape{5, 4}>()).extents() == shape{5, 1});
}

TEST_CASE("the mode is set before the first call as after it") {
  ike::lazy_model holder{
      ike::sequential("fc"_m = ike::lazy_linear<8>{}, "drop"_m = ike::dropout{.p = 0.5}),
      ike::seed{1}};
  holder.eval();
  const auto x = ike::ones<float, shape{4, 3}>();
  const ike::tensor<float, shape{dynamic, 8}> first{holder(x)};
  CHECK(std::memcmp(holder(x).data(), first.data(), sizeof(float) * 32) == 0);
  holder.train();
  CHECK(std::memcmp(holder(x).data(), first.data(), sizeof(float) * 32) != 0);
}
