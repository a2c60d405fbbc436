#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "ikebana/ikebana.hpp"
#include "ikebana/optim.hpp"
#include "ikebana/optim/schedule/combined_lr.hpp"
#include "ikebana/train/checkpointer.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/scratch.hpp"

/// Every optimizer with all that a run has around it: groups, a schedule, clipping, an average of
/// the parameters, a shuffled loader.

namespace ike = ikebana;
using namespace ike::literals;

namespace {

constexpr auto net =
    ike::sequential("fc"_m = ike::lazy_linear<6>{}, "drop"_m = ike::dropout{},
                    "norm"_m = ike::lazy_batch_norm1d<>{}, "head"_m = ike::lazy_linear<2>{});
constexpr ike::shape rows{ike::dynamic, 3};

auto made(std::uint64_t seed) {
  return ike::initialize<float, rows>(net, ike::seed{seed}, ike::shape{4, 3});
}

/// Calls f(name, make) for each optimizer, which `make(model)` makes.
template <class F>
void for_each_optimizer(const F& f) {
  const ike::group<"head"> head{.lr = 0.02};
  const ike::no_decay<"*.bias", "norm"> none{};
  f("sgd", [&](auto& m) {
    return ike::sgd{
        m, {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .max_norm = 1}, head, none};
  });
  f("adam", [&](auto& m) {
    return ike::adam{m, {.lr = 0.01, .amsgrad = true, .max_norm = 1}, head};
  });
  f("adamw", [&](auto& m) { return ike::adamw{m, {.lr = 0.01, .max_norm = 1}, head, none}; });
  f("adadelta", [&](auto& m) { return ike::adadelta{m, {.lr = 0.5, .max_norm = 1}, head}; });
  f("adafactor", [&](auto& m) { return ike::adafactor{m, {.lr = 0.01, .max_norm = 1}, head}; });
  f("adagrad", [&](auto& m) { return ike::adagrad{m, {.lr = 0.01, .max_norm = 1}, head}; });
  f("adamax", [&](auto& m) { return ike::adamax{m, {.lr = 0.01, .max_norm = 1}, head}; });
  f("asgd", [&](auto& m) { return ike::asgd{m, {.lr = 0.01, .t0 = 2, .max_norm = 1}, head}; });
  f("lamb", [&](auto& m) { return ike::lamb{m, {.lr = 0.01, .max_norm = 1}, head, none}; });
  f("lion", [&](auto& m) { return ike::lion{m, {.lr = 0.01, .weight_decay = 0.1}, head, none}; });
  f("muon", [&](auto& m) {
    return ike::muon{m, {.lr = 0.01, .max_norm = 1}, ike::group<"head">{.use_muon = false}};
  });
  f("nadam", [&](auto& m) { return ike::nadam{m, {.lr = 0.01, .max_norm = 1}, head}; });
  f("radam", [&](auto& m) { return ike::radam{m, {.lr = 0.01, .max_norm = 1}, head}; });
  f("rmsprop", [&](auto& m) {
    return ike::rmsprop{m, {.lr = 0.01, .momentum = 0.5, .centered = true, .max_norm = 1}, head};
  });
  f("rprop", [&](auto& m) { return ike::rprop{m, {.lr = 0.01, .max_norm = 1}, head}; });
  f("sparse_adam", [&](auto& m) { return ike::sparse_adam{m, {.lr = 0.01, .max_norm = 1}, head}; });
}

template <class Optimizer>
auto warm_up(Optimizer& optimizer) {
  return ike::lr_scheduler{
      optimizer,
      ike::sequential_lr{ike::for_steps{3, ike::linear_lr{.start_factor = 0.1, .total_iters = 3}},
                         ike::cosine_annealing_lr{.t_max = 10}}};
}

}  // namespace

TEST_CASE("no optimizer's step allocates, with groups, a schedule, clipping and an average") {
  const auto x = ike::uniform<float, ike::shape{4, 3}>(ike::seed{2});
  const auto t = ike::uniform<float, ike::shape{4, 2}>(ike::seed{3});
  const auto check = [&](const char* name, auto& model, const auto& step, auto& schedule) {
    CAPTURE(name);
    ike::averaged_model average{model, {.decay = 0.9}};
    long before = 0;
    for (int i = 0; i < 12; ++i) {
      if (i == 2) before = allocation_count;
      model.zero_grad();
      step();
      ike::clip_grad_norm(model, 1.0);
      ike::clip_grad_value(model, 0.5);
      average.update_parameters(model);
      schedule.step();
    }
    CHECK(allocation_count == before);
  };
  for_each_optimizer([&](const char* name, const auto& make) {
    auto model = made(1);
    auto optimizer = make(model);
    auto schedule = warm_up(optimizer);
    check(
        name, model,
        [&] {
          model.loss_backward(x, t, ike::mse_loss{});
          optimizer.step();
        },
        schedule);
  });
  auto model = made(1);
  ike::lbfgs optimizer{
      model, {.max_iter = 3, .history_size = 3, .line_search_fn = ike::line_search::strong_wolfe}};
  auto schedule = warm_up(optimizer);
  check(
      "lbfgs", model,
      [&] {
        optimizer.step([&] {
          model.zero_grad();
          return model.loss_backward(x, t, ike::mse_loss{});
        });
      },
      schedule);
}

TEST_CASE("a run with any optimizer resumes with the same bits") {
  const auto data = ike::tensor_dataset(ike::uniform<float, ike::shape{22, 3}>(ike::seed{2}),
                                        ike::uniform<float, ike::shape{22, 2}>(ike::seed{3}));
  for_each_optimizer([&](const char* name, const auto& make) {
    CAPTURE(name);
    const scratch_directory scratch;
    /// Trains from a checkpoint, if there is one, to the given step.
    const auto train = [&](std::uint64_t seed, int from, int save_at, int end) {
      auto model = made(seed);
      auto optimizer = make(model);
      auto schedule = warm_up(optimizer);
      ike::averaged_model average{model, {.decay = 0.5}};
      ike::data_loader loader{data, {.batch = 4, .shuffle = ike::seed{5}}};
      ike::checkpointer run{scratch.path() / "run", model, optimizer, schedule, loader, average};
      CHECK(run.resume() == (from > 0));
      for (int step = from; step < end;)
        for (auto [x, t] : loader) {
          model.train_step(x, t, ike::mse_loss{}, optimizer);
          average.update_parameters(model);
          schedule.step();
          if (++step == save_at) run.save();
          if (step == end) break;
        }
      return std::pair(std::move(model), std::move(average));
    };
    const auto [whole, whole_average] = train(1, 0, 8, 15);
    const auto [resumed, resumed_average] = train(7, 8, 0, 15);
    CHECK(std::ranges::equal(whole.parameters(), resumed.parameters()));
    CHECK(std::ranges::equal(whole.buffers(), resumed.buffers()));
    CHECK(std::ranges::equal(whole_average.module().parameters(),
                             resumed_average.module().parameters()));
    for (const float p : whole.parameters()) REQUIRE(std::isfinite(p));
  });
}

TEST_CASE("a run with any schedule resumes with the same bits") {
  const auto x = ike::uniform<float, ike::shape{4, 3}>(ike::seed{2});
  const auto t = ike::uniform<float, ike::shape{4, 2}>(ike::seed{3});
  const auto check = [&](const char* name, const auto& make) {
    CAPTURE(name);
    auto whole = made(1), resumed = made(7);
    ike::sgd optimizer{whole, {.lr = 0.05, .momentum = 0.9}, ike::group<"head">{.lr = 0.02}};
    ike::sgd other{resumed, {.lr = 0.05, .momentum = 0.9}, ike::group<"head">{.lr = 0.02}};
    auto schedule = make(optimizer);
    auto next = make(other);
    const auto train = [&](auto& model, auto& of_model, auto& scheduler, int steps) {
      for (int i = 0; i < steps; ++i) {
        model.train_step(x, t, ike::mse_loss{}, of_model);
        if constexpr (requires { scheduler.step(1.0); })
          scheduler.step(1.0);
        else
          scheduler.step();
      }
    };
    train(whole, optimizer, schedule, 7);
    const auto state = ike::get_training_state(whole, optimizer, schedule).clone();
    train(whole, optimizer, schedule, 11);
    ike::load_training_state(resumed, other, next, state);
    train(resumed, other, next, 11);
    CHECK(std::ranges::equal(whole.parameters(), resumed.parameters()));
    CHECK(optimizer.options().lr == other.options().lr);
    CHECK(optimizer.groups()[0].options.lr == other.groups()[0].options.lr);
  };
  const auto with = [&](const char* name, const auto& schedule) {
    check(name, [&](auto& optimizer) { return ike::lr_scheduler{optimizer, schedule}; });
  };
  with("lambda_lr",
       ike::lambda_lr{[](std::int64_t step) { return 1.0 / (1 + static_cast<double>(step)); }});
  with("multiplicative_lr", ike::multiplicative_lr{[](std::int64_t) { return 0.9; }});
  with("step_lr", ike::step_lr{4, 0.5});
  with("multi_step_lr", ike::multi_step_lr{{3, 9}, 0.5});
  with("constant_lr", ike::constant_lr{.factor = 0.5, .total_iters = 9});
  with("linear_lr", ike::linear_lr{.start_factor = 0.1, .total_iters = 9});
  with("exponential_lr", ike::exponential_lr{.gamma = 0.9});
  with("polynomial_lr", ike::polynomial_lr{.total_iters = 15, .power = 2});
  with("cosine_annealing_lr", ike::cosine_annealing_lr{.t_max = 10});
  with("cosine_annealing_warm_restarts",
       ike::cosine_annealing_warm_restarts{.t_0 = 3, .t_mult = 2});
  with("cyclic_lr", ike::cyclic_lr{.base_lr = 0.01, .max_lr = 0.1, .step_size_up = 3});
  with("one_cycle_lr", ike::one_cycle_lr{.max_lr = 0.1, .total_steps = 20});
  with("swa_lr", ike::swa_lr{.swa_lr = 0.01, .anneal_epochs = 9});
  with("sequential_lr", ike::sequential_lr{ike::for_steps{9, ike::linear_lr{.total_iters = 9}},
                                           ike::exponential_lr{.gamma = 0.9}});
  with("chained_lr",
       ike::chained_lr{ike::linear_lr{.total_iters = 9}, ike::exponential_lr{.gamma = 0.9}});
  check("reduce_lr_on_plateau", [](auto& optimizer) {
    return ike::reduce_lr_on_plateau{optimizer, {.factor = 0.5, .patience = 2}};
  });
}
