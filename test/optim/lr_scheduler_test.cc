#include "ikebana/optim/lr_scheduler.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "flat_model.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/reduce_lr_on_plateau.hpp"
#include "ikebana/optim/schedule/cyclic_lr.hpp"
#include "ikebana/optim/schedule/swa_lr.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/load_recorded.hpp"

using namespace ikebana;

namespace {

constexpr double first_lr = 0.5;

const state_dict& recorded() {
  static const state_dict all = load_recorded("schedules");
  return all;
}

/// Follows a schedule for 200 steps beside PyTorch's rates and momenta.
template <class Schedule, class Optimizer>
void follow(const std::string& name, const Schedule& schedule, Optimizer& optimizer,
            const double& momentum) {
  CAPTURE(name);
  const auto expected = recorded().at(name).view<double, shape{200, 2}>();
  lr_scheduler scheduler{optimizer, schedule};
  const long allocations = allocation_count_here;
  int wrong = 0;
  for (dim_t n = 0; n < 200; ++n) {
    wrong += !(std::abs(optimizer.options().lr - expected(n, 0)) <= 1e-12);
    wrong += !(std::abs(momentum - expected(n, 1)) <= 1e-12);
    wrong += scheduler.get_last_lr() != optimizer.options().lr || scheduler.last_epoch() != n;
    scheduler.step();
  }
  CHECK(wrong == 0);
  CHECK(allocation_count_here == allocations);
}

template <class Schedule>
void check(const std::string& name, const Schedule& schedule, bool with_adam = false) {
  flat_model<float> model;
  sgd with_momentum{model, {.lr = first_lr, .momentum = 0.9}};
  follow(name + "/sgd", schedule, with_momentum, with_momentum.options().momentum);
  if (!with_adam) return;
  adam with_betas{model, {.lr = first_lr}};
  follow(name + "/adam", schedule, with_betas, with_betas.options().betas.first);
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("schedules give the learning rates of PyTorch") {
  check("lambda_lr",
        lambda_lr{[](std::int64_t n) { return 1 / std::sqrt(1.0 + static_cast<double>(n)); }});
  check("multiplicative_lr",
        multiplicative_lr{[](std::int64_t n) { return n % 3 != 0 ? 0.99 : 0.95; }});
  check("step_lr", step_lr{.step_size = 30, .gamma = 0.5});
  check("multi_step_lr", multi_step_lr{.milestones = {75, 20, 150, 75}, .gamma = 0.3});
  check("constant_lr", constant_lr{.factor = 0.25, .total_iters = 17});
  check("linear_lr", linear_lr{.start_factor = 0.1, .end_factor = 0.8, .total_iters = 40});
  check("exponential_lr", exponential_lr{.gamma = 0.98});
  check("polynomial_lr", polynomial_lr{.total_iters = 150, .power = 1.7});
  check("cosine_annealing_lr", cosine_annealing_lr{.t_max = 60, .eta_min = 0.01});
  check("warm_restarts", cosine_annealing_warm_restarts{.t_0 = 9, .t_mult = 2, .eta_min = 0.02});
  check("warm_restarts_equal", cosine_annealing_warm_restarts{.t_0 = 25});
}

TEST_CASE("schedules one after another and at a time give the learning rates of PyTorch") {
  const linear_lr warm_up{.start_factor = 0.1, .total_iters = 20};
  const cosine_annealing_lr cosine{.t_max = 80, .eta_min = 0.01};
  const exponential_lr rest{.gamma = 0.9};
  check("sequential_lr", sequential_lr{warm_up, cosine, rest});
  check("sequential_lr", sequential_lr{for_steps{100, sequential_lr{warm_up, cosine}}, rest});
  CHECK(sequential_lr{warm_up, cosine}.duration() == 100);
  check("chained_lr",
        chained_lr{constant_lr{.factor = 0.1, .total_iters = 12}, exponential_lr{.gamma = 0.97}});
}

TEST_CASE("swa_lr anneals to the rate at which weights are averaged, as PyTorch's SWALR") {
  check("swa_lr", swa_lr{.swa_lr = 0.05});
  check("swa_lr_linear",
        swa_lr{.swa_lr = 0.8, .anneal_epochs = 37, .anneal_strategy = annealing::linear});
  check("swa_lr_at_once", swa_lr{.swa_lr = 0.05, .anneal_epochs = 0});
  flat_model<float> model;
  sgd optimizer{model, {.lr = first_lr}};
  CHECK(error_of([&] { lr_scheduler(optimizer, swa_lr{}); }) == "swa_lr: Invalid swa_lr: nan");
}

TEST_CASE("cyclic schedules change the momentum, too, as PyTorch's do") {
  const cyclic_lr triangular{.base_lr = 0.01, .max_lr = 0.3, .step_size_up = 21};
  check("cyclic_triangular", triangular);
  check("cyclic_triangular2", cyclic_lr{.base_lr = 0.01,
                                        .max_lr = 0.3,
                                        .step_size_up = 21,
                                        .step_size_down = 34,
                                        .mode = cyclic_mode::triangular2});
  check("cyclic_exp_range", cyclic_lr{.base_lr = 0.01,
                                      .max_lr = 0.3,
                                      .step_size_up = 10,
                                      .step_size_down = 5,
                                      .mode = cyclic_mode::exp_range,
                                      .gamma = 0.99,
                                      .base_momentum = 0.7,
                                      .max_momentum = 0.95});
  check("one_cycle", one_cycle_lr{.max_lr = 0.4, .total_steps = 200}, true);
  check("one_cycle_linear",
        one_cycle_lr{.max_lr = 0.4,
                     .epochs = 10,
                     .steps_per_epoch = 20,
                     .pct_start = 0.1,
                     .anneal_strategy = annealing::linear},
        true);
  check("one_cycle_three",
        one_cycle_lr{.max_lr = 0.4,
                     .total_steps = 200,
                     .base_momentum = 0.8,
                     .div_factor = 10,
                     .final_div_factor = 100,
                     .three_phase = true},
        true);
  // A composition passes the momentum on.
  check("one_cycle", sequential_lr{one_cycle_lr{.max_lr = 0.4, .total_steps = 200}}, true);
  check("one_cycle", chained_lr{one_cycle_lr{.max_lr = 0.4, .total_steps = 200}}, true);
}

TEST_CASE("a plateau reduces the learning rate as PyTorch does") {
  const auto metric = recorded().at("metric").view<double, shape{200}>();
  const auto follow_plateau = [&](const std::string& name,
                                  const reduce_lr_on_plateau_options& options) {
    CAPTURE(name);
    const auto expected = recorded().at(name).view<double, shape{200, 2}>();
    flat_model<float> model;
    sgd optimizer{model, {.lr = first_lr, .momentum = 0.9}};
    reduce_lr_on_plateau schedule{optimizer, options};
    int wrong = 0;
    for (dim_t n = 0; n < 200; ++n) {
      wrong += !(std::abs(schedule.get_last_lr() - expected(n, 0)) <= 1e-15);
      schedule.step(metric[n]);
    }
    CHECK(wrong == 0);
    CHECK(schedule.last_epoch() == 200);
    CHECK(expected(199, 0) < first_lr / 4);
  };
  follow_plateau("plateau", {.factor = 0.5, .patience = 3});
  follow_plateau(
      "plateau_max",
      {.mode = metric_mode::max, .factor = 0.3, .patience = 2, .threshold = 0.01, .cooldown = 4});
  follow_plateau("plateau_abs", {.factor = 0.2,
                                 .patience = 1,
                                 .threshold = 0.02,
                                 .threshold_mode = threshold_mode::abs,
                                 .min_lr = 1e-3});
}

TEST_CASE("a multiplicative schedule gives an earlier step the same rate again") {
  const multiplicative_lr schedule{[](std::int64_t) { return 0.5; }};
  CHECK(schedule.lr(1, 3) == 0.125);
  CHECK(schedule.lr(1, 1) == 0.5);
  CHECK(schedule.lr(2, 2) == 0.5);
}

TEST_CASE("invalid options of schedules are refused before anything has changed") {
  flat_model<float> model;
  sgd optimizer{model, {.lr = first_lr}};
  const auto refused = [&](const auto& schedule) {
    const std::string text = error_of([&] { lr_scheduler{optimizer, schedule}; });
    CHECK(optimizer.options().lr == first_lr);
    return text;
  };
  CHECK(refused(step_lr{}) == "step_lr: Invalid step_size: 0");
  CHECK(refused(constant_lr{.factor = 1.5}) == "constant_lr: Invalid factor: 1.5");
  CHECK(refused(linear_lr{.start_factor = -0.5}) == "linear_lr: Invalid start_factor: -0.5");
  CHECK(refused(linear_lr{.end_factor = 2}) == "linear_lr: Invalid end_factor: 2");
  CHECK(refused(exponential_lr{}).starts_with("exponential_lr: Invalid gamma"));
  CHECK(refused(polynomial_lr{.total_iters = 0}) == "polynomial_lr: Invalid total_iters: 0");
  CHECK(refused(cosine_annealing_lr{}) == "cosine_annealing_lr: Invalid t_max: 0");
  CHECK(refused(cosine_annealing_warm_restarts{.t_0 = 4, .t_mult = 0}) ==
        "cosine_annealing_warm_restarts: Invalid t_mult: 0");
  CHECK(refused(cyclic_lr{.max_lr = 1}) == "cyclic_lr: Invalid base_lr: -1");
  CHECK(refused(one_cycle_lr{.max_lr = 1}) == "one_cycle_lr: Invalid total_steps: 0");
  CHECK(refused(for_steps{-1, step_lr{.step_size = 1}}) ==
        "for_steps: Invalid number of steps: -1");
  CHECK(refused(sequential_lr{linear_lr{}, step_lr{}}) == "step_lr: Invalid step_size: 0");
  CHECK(refused(chained_lr{linear_lr{}, step_lr{}}) == "step_lr: Invalid step_size: 0");
  CHECK(error_of([&] {
          reduce_lr_on_plateau{optimizer, {.factor = 1}};
        }) == "reduce_lr_on_plateau: Invalid factor: 1");
}

TEST_CASE("a step beyond one cycle is refused, and the rate stays") {
  flat_model<float> model;
  sgd optimizer{model, {.lr = first_lr}};
  lr_scheduler scheduler{optimizer, one_cycle_lr{.max_lr = 1, .total_steps = 3}};
  for (int n = 0; n < 3; ++n) scheduler.step();
  const double last = optimizer.options().lr;
  CHECK(error_of([&] { scheduler.step(); }) == "one_cycle_lr: step 4 is beyond the last of 3");
  CHECK(optimizer.options().lr == last);
  CHECK(scheduler.last_epoch() == 3);
}

namespace {
struct bare_optimizer {
  struct {
    double lr = 1;
  } o;
  auto& options() { return o; }
};
}  // namespace

TEST_CASE("a schedule that changes the momentum refuses an optimizer without one") {
  bare_optimizer optimizer;
  CHECK(error_of([&] {
          lr_scheduler{optimizer, one_cycle_lr{.max_lr = 1, .total_steps = 3}};
        }) == "the schedule changes the momentum (cycle_momentum), which the optimizer lacks");
  CHECK(optimizer.o.lr == 1);
  lr_scheduler rate_only{optimizer,
                         one_cycle_lr{.max_lr = 1, .total_steps = 100, .cycle_momentum = false}};
  CHECK(optimizer.o.lr == doctest::Approx(1.0 / 25));
}
