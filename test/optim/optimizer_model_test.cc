#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/optimizer_state_dict.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/train/training_state.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<4>{}, "relu"_m = ike::relu{},
                    "drop"_m = ike::dropout{.p = 0.5}, "fc2"_m = ike::lazy_linear<2>{});
auto make(std::uint64_t seed = 1) {
  return ike::initialize<float, shape{dynamic, 3}>(net, ike::seed{seed});
}
using model = decltype(make());

const auto x = ike::uniform<float, shape{5, 3}>(ike::seed{2});
const auto t = ike::uniform<float, shape{5, 2}>(ike::seed{3});

template <class Model>
std::vector<float> weights(const Model& m) {
  return {m.parameters().begin(), m.parameters().end()};
}

template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const ike::state_error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("train_step refuses an optimizer of another model before anything changes") {
  model a = make(), b = make(2);
  ike::sgd other{b, {.lr = 0.1}};
  ike::adam another{b};
  const auto before_a = weights(a), before_b = weights(b);
  const std::string said = "train_step: the optimizer was made for another model";
  CHECK(refusal([&] { a.train_step(x, t, ike::mse_loss{}, other); }) == said);
  CHECK(refusal([&] { a.train_step(x, t, ike::mse_loss{}, another); }) == said);
  CHECK(weights(a) == before_a);
  CHECK(weights(b) == before_b);
  CHECK(a.random_step() == 0);
  for (const float g : a.gradients()) CHECK(g == 0);
  b.train_step(x, t, ike::mse_loss{}, other);
  CHECK(weights(b) != before_b);

  ike::launch(ike::threads{1}, [&](ike::process_group auto& group) {
    auto replica = ike::replicate(make(), group);
    CHECK(refusal([&] { replica.train_step(x, t, ike::mse_loss{}, other); }) == said);
    ike::sgd own{replica, {.lr = 0.1}};
    replica.train_step(x, t, ike::mse_loss{}, own);
  });
}

TEST_CASE("states are those of a model and its own optimizer") {
  model a = make(), b = make(2);
  ike::sgd of_a{a, {.lr = 0.1}}, of_b{b, {.lr = 0.1}};
  const ike::state_dict saved = ike::get_training_state(a, of_a).clone();
  const ike::state_dict optimizer = ike::get_optimizer_state_dict(a, of_a);
  const auto before = weights(a);
  const std::string said = ": the optimizer was made for another model";
  CHECK(refusal([&] { ike::get_training_state(a, of_b); }) == "get_training_state" + said);
  CHECK(refusal([&] { ike::load_training_state(a, of_b, saved); }) == "load_training_state" + said);
  CHECK(refusal([&] { ike::get_optimizer_state_dict(a, of_b); }) ==
        "get_optimizer_state_dict" + said);
  CHECK(refusal([&] { ike::set_optimizer_state_dict(a, of_b, optimizer); }) ==
        "set_optimizer_state_dict" + said);
  CHECK(weights(a) == before);
  const ike::sgd moved = std::move(of_a);
  CHECK(refusal([&] { ike::get_training_state(a, of_a); }) == "get_training_state" + said);
}

TEST_CASE("an optimizer goes on with a model that was moved") {
  model a = make(), same = make();
  ike::sgd optimizer{a, {.lr = 0.1}}, reference{same, {.lr = 0.1}};
  model b = std::move(a);
  CHECK(b.train_step(x, t, ike::mse_loss{}, optimizer) ==
        same.train_step(x, t, ike::mse_loss{}, reference));
  CHECK(weights(b) == weights(same));
}

TEST_CASE("a step of an optimizer whose model is gone is a state_error") {
  const std::string said =
      "the optimizer's model is gone: it was destroyed, or another was assigned to it";
  model a = make();
  ike::sgd optimizer{a, {.lr = 0.1}};
  a = make(2);
  CHECK(refusal([&] { optimizer.step(); }) == said);
  CHECK(refusal([&] { optimizer.begin_step(); }) == said);
  const auto before = weights(a);
  CHECK(refusal([&] { a.train_step(x, t, ike::mse_loss{}, optimizer); }) ==
        "train_step: the optimizer was made for another model");
  CHECK(weights(a) == before);
  std::optional<model> c = make();
  ike::adam of_c{*c};
  c.reset();
  CHECK(refusal([&] { of_c.step(); }) == said);
}

TEST_CASE("whatever needs the network of a model that was moved from is a state_error") {
  const std::string said = "the model was moved from: use the one that it was moved to";
  model a = make();
  model b = std::move(a);
  const ike::tensor<float, shape{5, 2}> g;
  CHECK(refusal([&] { a(x); }) == said);
  CHECK(refusal([&] { a.output(); }) == said);
  CHECK(refusal([&] { a.backward(g); }) == said);
  CHECK(refusal([&] { a.loss_backward(x, t, ike::mse_loss{}); }) == said);
  CHECK(refusal([&] { a["fc1.weight"_s]; }) == said);
  CHECK(refusal([&] { a.gradient("fc1.weight"_s); }) == said);
  CHECK(refusal([&] { a.clone(); }) == said);
  CHECK(refusal([&] { ike::get_state_dict(a); }) == said);
  CHECK(refusal([&] { ike::sgd{a, {.lr = 0.1}}; }) == said);
  CHECK(a.parameters().empty());
  a.eval();
  CHECK(refusal([&] { a(x); }) == said);
  a = b.clone();
  CHECK(a(x).size() == 10);
  CHECK(b(x).size() == 10);

  ike::lazy_model holder{net, ike::seed{1}};
  ike::lazy_model other = std::move(holder);
  other(x);
  ike::lazy_model third = std::move(other);
  for (auto* gone : {&holder, &other}) {
    CHECK(refusal([&] { (*gone)(x); }) == said);
    CHECK(refusal([&] { gone->initialize_parameters(x); }) == said);
    CHECK(refusal([&] { ike::get_state_dict(*gone); }) == said);
    CHECK(refusal([&] { ike::load_state_dict(*gone, third.snapshot()); }) == said);
    CHECK(refusal([&] { gone->register_forward_hook("fc1"_s, [](const ike::module_call&) {}); }) ==
          said);
  }
  CHECK(third(x).size() == 10);
}
