#include "ikebana/optim/optimizer_state_dict.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

constexpr auto network = ike::sequential("fc1"_m = ike::linear<5, 7>{}, "tanh"_m = ike::tanh{},
                                         "fc2"_m = ike::linear<7, 3>{});

template <class T>
auto fresh() {
  return ike::initialize<T, shape{4, 5}>(network, ike::seed{1});
}

template <class Model, class Optimizer>
void train(Model& model, Optimizer& optimizer, std::uint64_t from, std::uint64_t to) {
  using T = typename Model::value_type;
  for (std::uint64_t s = from; s < to; ++s)
    model.train_step(ike::uniform<T, shape{4, 5}>(ike::seed{s}),
                     ike::uniform<T, shape{4, 3}>(ike::seed{100 + s}), ike::mse_loss{}, optimizer);
}

std::string complaint(auto&& f) {
  try {
    f();
  } catch (const ike::state_error& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE_TEMPLATE("An optimizer's state goes by parameter, and who takes it over goes on", T,
                   float, double) {
  auto a = fresh<T>();
  ike::adam one{a, {.lr = 0.01, .amsgrad = true}};
  train(a, one, 0, 3);
  const ike::state_dict dict = ike::get_optimizer_state_dict(a, one);
  CHECK(dict.size() == 16);
  CHECK(dict.at("state.fc1.weight.exp_avg").extents == shape{7, 5});
  CHECK(dict.at("state.fc2.bias.max_exp_avg_sq").extents == shape{3});
  CHECK(*dict.at("state.fc2.bias.step").template view<std::int64_t, shape{}>().data() == 3);
  const auto weight = dict.at("state.fc2.weight.exp_avg").template view<T, shape{3, 7}>();
  CHECK(
      std::equal(weight.data(), weight.data() + 21,
                 reinterpret_cast<const T*>(one.state()[1].bytes.data()) + a.layout().offsets[2]));

  auto b = a.clone();
  ike::adam two{b, {.lr = 0.01, .amsgrad = true}};
  ike::set_optimizer_state_dict(b, two, dict);
  train(a, one, 3, 6);
  train(b, two, 3, 6);
  CHECK(std::ranges::equal(a.parameters(), b.parameters()));
}

TEST_CASE("Sums of momentum, and a state in another precision") {
  auto a = fresh<float>();
  auto b = fresh<double>();
  ike::sgd one{a, {.lr = 0.1, .momentum = 0.9}};
  ike::sgd two{b, {.lr = 0.1, .momentum = 0.9}};
  train(a, one, 0, 2);
  const ike::state_dict dict = ike::get_optimizer_state_dict(a, one);
  ike::set_optimizer_state_dict(b, two, dict);
  const ike::state_dict wide = ike::get_optimizer_state_dict(b, two);
  CHECK(dict.size() == 8);
  CHECK(*wide.at("state.fc1.weight.step").view<std::int64_t, shape{}>().data() == 2);
  const auto x = dict.at("state.fc1.weight.momentum_buffer").view<float, shape{7, 5}>();
  const auto y = wide.at("state.fc1.weight.momentum_buffer").view<double, shape{7, 5}>();
  for (ike::dim_t i = 0; i < 35; ++i) CHECK(static_cast<double>(x[i]) == y[i]);
  ike::sgd without{a, {.lr = 0.1}};
  CHECK(ike::get_optimizer_state_dict(a, without).size() == 4);
}

TEST_CASE("A state that does not fit is refused before anything has changed") {
  auto model = fresh<float>();
  ike::adam adam{model};
  train(model, adam, 0, 2);
  ike::state_dict dict = ike::get_optimizer_state_dict(model, adam);
  dict.rename("state.fc1.bias.exp_avg", "state.fc9.bias.exp_avg");
  const ike::state_dict before = ike::get_optimizer_state_dict(model, adam);
  CHECK(complaint([&] { ike::set_optimizer_state_dict(model, adam, dict); }) ==
        "load_state_dict: missing keys: state.fc1.bias.exp_avg; unexpected keys: "
        "state.fc9.bias.exp_avg");
  dict.rename("state.fc9.bias.exp_avg", "state.fc1.bias.exp_avg");
  *reinterpret_cast<std::int64_t*>(
      const_cast<std::byte*>(dict.at("state.fc2.weight.step").bytes.data())) = 5;
  CHECK(
      complaint([&] { ike::set_optimizer_state_dict(model, adam, dict); }) ==
      "set_optimizer_state_dict: state.fc1.weight.step and state.fc2.weight.step differ, but this "
      "optimizer keeps one for all parameters");
  for (const auto& e : dict)
    if (e.name.ends_with(".step"))
      *reinterpret_cast<std::int64_t*>(const_cast<std::byte*>(e.bytes.data())) = -5;
  CHECK(complaint([&] { ike::set_optimizer_state_dict(model, adam, dict); }) ==
        "state.fc1.weight.step: expected a number of steps, got -5");
  ike::state_dict empty;
  for (const auto& e : before) empty.add_uninitialized(e.name, e.type, e.extents);
  CHECK(complaint([&] {
          ike::set_optimizer_state_dict(model, adam, empty);
        }).starts_with("load_state_dict: uninitialized: state.fc1.weight.step, "));
  const ike::state_dict after = ike::get_optimizer_state_dict(model, adam);
  for (const auto& e : before) CHECK(std::ranges::equal(e.bytes, after.at(e.name).bytes));

  auto other = ike::initialize<float, shape{4, 5}>(ike::linear<5, 2>{}, ike::seed{1});
  CHECK(complaint([&] { ike::get_optimizer_state_dict(other, adam); }) ==
        "get_optimizer_state_dict: the optimizer was made for another model");
  struct {
    decltype(adam)& inner;
    auto state() { return inner.state(); }
  } own{adam};
  CHECK(complaint([&] { ike::get_optimizer_state_dict(other, own); }) ==
        "the optimizer is that of another model: its exp_avg has 112 elements, the model's "
        "parameters have 32");
}
