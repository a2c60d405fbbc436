#include "ikebana/optim/group.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/lr_scheduler.hpp"
#include "ikebana/optim/reduce_lr_on_plateau.hpp"
#include "ikebana/optim/rprop.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate.hpp"
#include "ikebana/train/training_state.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/load_recorded.hpp"

namespace ike = ikebana;
using namespace ike::literals;

namespace {

constexpr auto net = ike::sequential("fc"_m = ike::linear<3, 4>{}, "head"_m = ike::linear<4, 5>{});

template <class T>
auto made() {
  return ike::initialize<T, ike::shape{2, 3}>(net, ike::seed{1});
}

template <class T>
std::span<const T> recorded(const std::string& name) {
  static const ike::state_dict all = load_recorded("optimizers");
  const auto bytes = all.at((sizeof(T) == 4 ? "f32/groups/" : "f64/groups/") + name).bytes;
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

/// Copies values, in PyTorch's order, into one of the flat arrays, or out of it.
template <class Model, class F>
void for_each_place(const Model& model, F&& f) {
  std::size_t from = 0, i = 0;
  for (const auto& p : model.current_program().all_parameters()) {
    const auto n = static_cast<std::size_t>(p.spec.extents.numel());
    f(from, static_cast<std::size_t>(model.layout().offsets[i++]), n);
    from += n;
  }
}
template <class Model, class T>
void give(const Model& model, std::span<const T> values, std::span<T> flat) {
  for_each_place(model, [&](std::size_t from, std::size_t to, std::size_t n) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(from), n,
                flat.begin() + static_cast<std::ptrdiff_t>(to));
  });
}

/// Takes 20 steps in groups and with a schedule beside PyTorch's.
template <class T, class Make>
void follow(const std::string& name, Make make) {
  CAPTURE(name);
  auto model = made<T>();
  give<decltype(model), T>(model, recorded<T>("parameters"), model.parameters());
  auto optimizer = make(model);
  const auto gradients = recorded<T>("gradients");
  auto schedule = [&] {
    if constexpr (std::is_same_v<decltype(optimizer), ike::adamw<T>>)
      return ike::lr_scheduler{optimizer, ike::cosine_annealing_lr{.t_max = 15}};
    else
      return ike::lr_scheduler{optimizer, ike::step_lr{.step_size = 7}};
  }();
  const long allocations = allocation_count_here;
  for (std::size_t step = 0; step < 20; ++step) {
    give<decltype(model), T>(model, gradients.subspan(step * 41, 41), model.gradients());
    if (step % 2 == 0) {
      optimizer.step();
    } else {
      optimizer.begin_step();
      const auto n = static_cast<ike::dim_t>(model.parameters().size());
      optimizer.step_elements(16, n);
      optimizer.step_elements(0, 16);
    }
    schedule.step();
  }
  CHECK(allocation_count_here == allocations);
  const auto expected = recorded<T>(name);
  double most = 0;
  for_each_place(model, [&](std::size_t from, std::size_t to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      most = std::max(most, std::abs(static_cast<double>(model.parameters()[to + i]) -
                                     static_cast<double>(expected[from + i])));
  });
  CHECK(most <= (sizeof(T) == 4 ? 2e-6 : 1e-12));
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

auto in_groups(auto& model) {
  return ike::adamw{model,
                    {.lr = 1e-2, .betas = {0.9, 0.95}, .weight_decay = 0.1},
                    ike::group<"head">{.lr = 3e-2, .betas = {{0.5, 0.9}}},
                    ike::no_decay<"*.bias">{}};
}

template <class Model, class Optimizer>
void train(Model& model, Optimizer& optimizer, int steps) {
  const auto x = ike::ones<float, ike::shape{2, 3}>();
  const auto y = ike::ones<float, ike::shape{2, 5}>();
  for (int i = 0; i < steps; ++i) model.train_step(x, y, ike::mse_loss{}, optimizer);
}

template <class A, class B>
bool same(const A& a, const B& b) {
  return std::equal(a.parameters().begin(), a.parameters().end(), b.parameters().begin(),
                    b.parameters().end());
}

}  // namespace

namespace {
template <class T>
void follow_all() {
  follow<T>("adamw", [](auto& model) { return in_groups(model); });
  follow<T>("sgd", [](auto& model) {
    return ike::sgd{model,
                    {.lr = 0.1},
                    ike::group<"fc.bias">{.momentum = 0.9, .nesterov = true},
                    ike::group<"head.weight", "head.b*">{.lr = 0.02, .weight_decay = 0.1}};
  });
  follow<T>("rprop", [](auto& model) {
    return ike::rprop{model, {}, ike::group<"head">{.lr = 0.03, .etas = {{0.3, 1.7}}}};
  });
}
}  // namespace

TEST_CASE("groups of parameters have their own options, as PyTorch's") {
  follow_all<float>();
  follow_all<double>();
}

TEST_CASE("of several groups, the last one counts, option by option") {
  auto model = made<float>();
  ike::sgd optimizer{model,
                     {.lr = 1},
                     ike::group<"*">{.lr = 0.5, .weight_decay = 0.25},
                     ike::group<"head">{.lr = 0.125}};
  REQUIRE(optimizer.groups().size() == 2);
  CHECK(optimizer.groups()[1].name == "head");
  std::ranges::fill(model.parameters(), 1.0f);
  std::ranges::fill(model.gradients(), 0.0f);
  optimizer.step();
  CHECK(model["fc.weight"_s](0, 0) == 0.875f);
  CHECK(model["head.bias"_s](4) == 0.96875f);
  // Options of a group may be changed, and those that it does not set are those of all.
  optimizer.groups()[1].options.lr.reset();
  optimizer.groups()[0].options.lr.reset();
  optimizer.options().lr = 2;
  std::ranges::fill(model.parameters(), 1.0f);
  optimizer.step();
  CHECK(model["head.bias"_s](4) == 0.5f);
}

TEST_CASE("a group that cannot be is refused before anything is changed") {
  auto model = made<float>();
  CHECK(error_of([&] {
          ike::adamw{model, {}, ike::group<"head">{.momentum = 0.5}};
        }) == "adamw: group<\"head\"> sets momentum, which it does not have");
  CHECK(error_of([&] {
          ike::adamw{model, {}, ike::no_decay<"head", "fc">{}, ike::group<"head", "fc">{}};
        }) == "adamw: group<\"head,fc\"> is given twice");
  CHECK(error_of([&] {
          ike::sgd{model, {.lr = 0.1}, ike::group<"head">{.lr = -1.0}};
        }) == "sgd: Invalid learning rate: -1");
}

TEST_CASE("training with groups and a schedule resumes with the same bits") {
  auto model = made<float>();
  auto optimizer = in_groups(model);
  ike::lr_scheduler schedule{optimizer, ike::exponential_lr{.gamma = 0.5}};
  train(model, optimizer, 3);
  schedule.step();
  const auto state = ike::get_training_state(model, optimizer, schedule).clone();
  CHECK(state.contains("optimizer.groups.head.beta1"));
  CHECK(state.contains("optimizer.groups.*.bias.weight_decay"));
  train(model, optimizer, 3);

  auto other = made<float>();
  auto resumed = in_groups(other);
  ike::lr_scheduler again{resumed, ike::exponential_lr{.gamma = 0.5}};
  ike::load_training_state(other, resumed, again, state);
  CHECK(*resumed.groups()[0].options.lr == 0.015);
  train(other, resumed, 3);
  CHECK(same(other, model));

  // Groups are compared like options.
  ike::adamw without{other, {.lr = 1e-2, .betas = {0.9, 0.95}, .weight_decay = 0.1}};
  ike::lr_scheduler of_it{without, ike::exponential_lr{.gamma = 0.5}};
  CHECK(error_of([&] {
          ike::load_training_state(other, without, of_it, state);
        }).find("optimizer.groups.head.lr") != std::string::npos);
  ike::adamw decays{other,
                    {.lr = 1e-2, .betas = {0.9, 0.95}, .weight_decay = 0.1},
                    ike::group<"head">{.lr = 0.02, .betas = {{0.25, 0.9}}},
                    ike::group<"*.bias">{.weight_decay = 0.5}};
  ike::lr_scheduler of_decays{decays, ike::exponential_lr{.gamma = 0.5}};
  const std::string said =
      error_of([&] { ike::load_training_state(other, decays, of_decays, state); });
  CHECK(said.find("optimizer.groups.head.beta1 expects 0.25, got 0.5") != std::string::npos);
  CHECK(said.find("optimizer.groups.*.bias.weight_decay expects 0.5, got 0") != std::string::npos);
  CHECK(said.find("lr_scheduler.initial_group_lr expects 0.02, got 0.03") != std::string::npos);
  ike::load_training_state(other, decays, of_decays, state, ike::saved_options::restore);
  CHECK(*decays.groups()[1].options.weight_decay == 0);
  CHECK(*decays.groups()[0].options.lr == 0.015);
}

TEST_CASE("a plateau reduces the rate of each group") {
  auto model = made<float>();
  ike::sgd optimizer{model, {.lr = 1}, ike::group<"head">{.lr = 0.5}, ike::no_decay<"*.bias">{}};
  ike::reduce_lr_on_plateau schedule{optimizer, {.factor = 0.5, .patience = 0, .min_lr = 0.2}};
  for (int i = 0; i < 3; ++i) schedule.step(1);
  CHECK(optimizer.options().lr == 0.25);
  CHECK(*optimizer.groups()[0].options.lr == 0.2);
  CHECK(!optimizer.groups()[1].options.lr.has_value());
  const auto state = ike::get_training_state(model, optimizer, schedule).clone();
  ike::sgd other{model, {.lr = 1}, ike::group<"head">{.lr = 0.5}, ike::no_decay<"*.bias">{}};
  ike::reduce_lr_on_plateau again{other, {.factor = 0.5, .patience = 0, .min_lr = 0.2}};
  ike::load_training_state(model, other, again, state, ike::saved_options::ignore);
  CHECK(*other.groups()[0].options.lr == 0.5);
  ike::load_training_state(model, other, again, state, ike::saved_options::restore);
  CHECK(*other.groups()[0].options.lr == 0.2);
}

TEST_CASE("ranks that share an optimizer's work, or step in backward, respect its groups") {
  auto alone = made<float>();
  auto optimizer = in_groups(alone);
  train(alone, optimizer, 4);
  const auto check = [&]<class Policy>() {
    ike::launch(ike::threads{3}, [&](ike::process_group auto& group) {
      auto net_of_rank = ike::replicate<Policy>(made<float>(), group);
      auto its = in_groups(net_of_rank);
      train(net_of_rank, its, 4);
      float most = 0;
      for (std::size_t i = 0; i < alone.parameters().size(); ++i)
        most = std::max(most, std::abs(net_of_rank.parameters()[i] - alone.parameters()[i]));
      CHECK(most <= 1e-6f);
    });
  };
  check.operator()<ike::replicate_policy<ike::shard_optimizer<true>>>();
  check.operator()<ike::replicate_policy<ike::optimizer_in_backward<true>>>();
  check.
  operator()<ike::replicate_policy<ike::shard_optimizer<true>, ike::optimizer_in_backward<true>>>();
}
