#include "ikebana/optim/elementwise_optimizer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "flat_model.hpp"
#include "ikebana/optim.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/load_recorded.hpp"

using namespace ikebana;

namespace {

constexpr dim_t n = 37;

template <class T>
constexpr const char* type_name = sizeof(T) == 4 ? "f32/" : "f64/";

template <class T>
std::span<const T> recorded(const std::string& name) {
  static const state_dict all = load_recorded("optimizers");
  const auto bytes = all.at(type_name<T> + name).bytes;
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

template <class T>
flat_model<T> recorded_model() {
  flat_model<T> model(n);
  std::ranges::copy(recorded<T>("parameters"), model.parameters().begin());
  return model;
}

template <class T>
void give_gradients(flat_model<T>& model, std::size_t step) {
  std::ranges::copy(recorded<T>("gradients").subspan(step * n, n), model.gradients().begin());
}

template <class T>
double largest_difference(std::span<const T> a, std::span<const T> b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= most) && !std::isnan(most)) most = d;  // NaN is the most.
  }
  return most;
}

/// Takes 20 steps beside PyTorch's, half of them by another optimizer that takes over the state.
template <template <class> class Optimizer, class T, class Options>
void follow(const std::string& name, const Options& options, double tolerance) {
  CAPTURE(name);
  flat_model<T> model = recorded_model<T>();
  Optimizer<T> first{model, options}, second{model, options};
  long allocations = 0;
  std::size_t row = 0;
  for (std::size_t step = 0; step < 20; ++step) {
    give_gradients(model, step);
    if (step == 10) copy_state(second, first);
    const long before = allocation_count_here;
    if (step < 10) {
      first.step();
    } else {
      // A step in parts is the same.
      second.begin_step();
      second.step_elements(20, n);
      second.step_elements(0, 20);
    }
    allocations += allocation_count_here - before;
    if (step + 1 != 1 && step + 1 != 5 && step + 1 != 20) continue;
    CHECK(largest_difference<T>(model.parameters(), recorded<T>(name).subspan(row++ * n, n)) <=
          tolerance);
  }
  CHECK(allocations == 0);
}

template <template <class> class Optimizer, class Options>
void check(const std::string& name, const Options& options, double tolerance = 1e-12) {
  follow<Optimizer, float>(name, options, 2e-6);
  follow<Optimizer, double>(name, options, tolerance);
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

TEST_CASE("sgd, adam and adamw step as PyTorch's do") {
  check<sgd>("sgd", sgd_options{.lr = 0.1});
  check<sgd>(
      "sgd_dampened",
      sgd_options{
          .lr = 0.05, .momentum = 0.9, .dampening = 0.2, .weight_decay = 0.1, .maximize = true});
  check<sgd>("sgd_nesterov", sgd_options{.lr = 0.05, .momentum = 0.9, .nesterov = true});
  check<adam>("adam", adam_options{});
  check<adam>("adam_amsgrad", adam_options{.lr = 0.05,
                                           .betas = {0.5, 0.9},
                                           .eps = 1e-3,
                                           .weight_decay = 0.1,
                                           .amsgrad = true,
                                           .maximize = true});
  check<adamw>("adamw", adamw_options{});
  check<adamw>("adamw_amsgrad", adamw_options{.lr = 0.05,
                                              .betas = {0.5, 0.9},
                                              .eps = 1e-3,
                                              .weight_decay = 0.1,
                                              .amsgrad = true,
                                              .maximize = true});
}

TEST_CASE("optimizers step as PyTorch's do") {
  check<rmsprop>("rmsprop", rmsprop_options{});
  check<rmsprop>("rmsprop_momentum", rmsprop_options{.lr = 0.02,
                                                     .alpha = 0.9,
                                                     .eps = 1e-3,
                                                     .weight_decay = 0.1,
                                                     .momentum = 0.9,
                                                     .maximize = true});
  check<rmsprop>("rmsprop_centered",
                 rmsprop_options{.lr = 0.02, .momentum = 0.5, .centered = true});
  check<adagrad>("adagrad", adagrad_options{});
  check<adagrad>("adagrad_decay", adagrad_options{.lr = 0.1,
                                                  .lr_decay = 0.1,
                                                  .weight_decay = 0.1,
                                                  .initial_accumulator_value = 0.5,
                                                  .eps = 1e-3,
                                                  .maximize = true});
  check<adadelta>("adadelta", adadelta_options{});
  check<adadelta>(
      "adadelta_decay",
      adadelta_options{.lr = 0.5, .rho = 0.8, .eps = 1e-3, .weight_decay = 0.1, .maximize = true});
  check<adamax>("adamax", adamax_options{});
  check<adamax>(
      "adamax_decay",
      adamax_options{
          .lr = 0.05, .betas = {0.5, 0.9}, .eps = 1e-3, .weight_decay = 0.1, .maximize = true});
  check<radam>("radam", radam_options{});
  check<radam>("radam_decay",
               radam_options{.lr = 0.05, .betas = {0.7, 0.99}, .eps = 1e-3, .weight_decay = 0.1});
  check<rprop>("rprop", rprop_options{});
  check<rprop>(
      "rprop_limits",
      rprop_options{.lr = 0.1, .etas = {0.3, 1.7}, .step_sizes = {0.02, 0.15}, .maximize = true});
}

TEST_CASE("optimizers for which PyTorch keeps a factor in float step as its do") {
  check<nadam>("nadam", nadam_options{}, 1e-8);
  check<nadam>(
      "nadam_decay",
      nadam_options{
          .lr = 0.05, .betas = {0.7, 0.9}, .eps = 1e-3, .weight_decay = 0.1, .momentum_decay = 0.1},
      1e-7);
  check<asgd>("asgd", asgd_options{}, 1e-8);
  check<asgd>(
      "asgd_average",
      asgd_options{
          .lr = 0.1, .lambd = 0.1, .alpha = 0.5, .t0 = 3, .weight_decay = 0.1, .maximize = true},
      1e-7);
}

TEST_CASE("asgd averages the parameters") {
  flat_model<double> model = recorded_model<double>();
  asgd optimizer{
      model,
      {.lr = 0.1, .lambd = 0.1, .alpha = 0.5, .t0 = 3, .weight_decay = 0.1, .maximize = true}};
  for (std::size_t step = 0; step < 20; ++step) {
    give_gradients(model, step);
    optimizer.step();
  }
  const auto ax = optimizer.state()[1];
  CHECK(ax.name == "ax");
  CHECK(largest_difference<double>({reinterpret_cast<const double*>(ax.bytes.data()), n},
                                   recorded<double>("asgd_average/ax")) <= 1e-7);
}

TEST_CASE_TEMPLATE("lion follows its paper", T, float, double) {
  const lion_options o{.lr = 0.01, .betas = {0.8, 0.9}, .weight_decay = 0.1};
  flat_model<T> model = recorded_model<T>();
  std::vector<double> p(model.parameters().begin(), model.parameters().end()), m(n);
  lion optimizer{model, o};
  for (std::size_t step = 0; step < 20; ++step) {
    give_gradients(model, step);
    optimizer.step();
    for (std::size_t i = 0; i < n; ++i) {
      const auto g = static_cast<double>(model.gradients()[i]);
      const double u = o.betas.first * m[i] + (1 - o.betas.first) * g;
      p[i] = p[i] * (1 - o.lr * o.weight_decay) - o.lr * ((u > 0) - (u < 0));
      m[i] = o.betas.second * m[i] + (1 - o.betas.second) * g;
    }
  }
  double most = 0;
  for (std::size_t i = 0; i < n; ++i)
    most = std::max(most, std::abs(p[i] - static_cast<double>(model.parameters()[i])));
  CHECK(most <= (sizeof(T) == 4 ? 1e-5 : 1e-12));
}

TEST_CASE("gradients are clipped in the optimizer's own pass") {
  const auto run = [](double max_norm, double factor) {
    flat_model<double> model = recorded_model<double>();
    rmsprop optimizer{model, {.max_norm = max_norm}};
    for (std::size_t step = 0; step < 5; ++step) {
      give_gradients(model, step);
      for (double& g : model.gradients()) g *= factor;
      optimizer.step();
    }
    return model;
  };
  // Gradients of norm 1 or more become of norm 1, whatever they were.
  auto a = run(1, 1), b = run(1, 100);
  CHECK(largest_difference<double>(a.parameters(), b.parameters()) <= 1e-6);
  CHECK(largest_difference<double>(a.parameters(), recorded_model<double>().parameters()) > 1e-3);
  flat_model<double> model = recorded_model<double>();
  rmsprop optimizer{model, {.max_norm = 1}};
  CHECK(error_of([&] {
          optimizer.begin_step();
        }).starts_with("rmsprop: max_norm needs all gradients before the step"));
  model.gradients()[3] = std::nan("");
  rmsprop strict{model, {.max_norm = 1, .error_if_nonfinite = true}};
  CHECK(error_of([&] { strict.step(); }) != "nothing was thrown");
  CHECK(largest_difference<double>(model.parameters(), recorded_model<double>().parameters()) == 0);
}

TEST_CASE("the defaults of options are PyTorch's") {
  constexpr auto common = [](const auto& o, double lr) {
    return o.lr == lr && !o.maximize && !o.error_if_nonfinite &&
           o.max_norm == std::numeric_limits<double>::infinity();
  };
  static_assert(common(rmsprop_options{}, 1e-2) && rmsprop_options{}.alpha == 0.99 &&
                rmsprop_options{}.eps == 1e-8 && rmsprop_options{}.weight_decay == 0 &&
                rmsprop_options{}.momentum == 0 && !rmsprop_options{}.centered);
  static_assert(common(adagrad_options{}, 1e-2) && adagrad_options{}.lr_decay == 0 &&
                adagrad_options{}.weight_decay == 0 && adagrad_options{}.eps == 1e-10 &&
                adagrad_options{}.initial_accumulator_value == 0);
  static_assert(common(adadelta_options{}, 1) && adadelta_options{}.rho == 0.9 &&
                adadelta_options{}.eps == 1e-6 && adadelta_options{}.weight_decay == 0);
  constexpr std::pair<double, double> betas{0.9, 0.999};
  static_assert(common(adamax_options{}, 2e-3) && adamax_options{}.betas == betas &&
                adamax_options{}.eps == 1e-8 && adamax_options{}.weight_decay == 0);
  static_assert(common(nadam_options{}, 2e-3) && nadam_options{}.betas == betas &&
                nadam_options{}.eps == 1e-8 && nadam_options{}.weight_decay == 0 &&
                nadam_options{}.momentum_decay == 4e-3);
  static_assert(common(radam_options{}, 1e-3) && radam_options{}.betas == betas &&
                radam_options{}.eps == 1e-8 && radam_options{}.weight_decay == 0);
  static_assert(common(asgd_options{}, 1e-2) && asgd_options{}.lambd == 1e-4 &&
                asgd_options{}.alpha == 0.75 && asgd_options{}.t0 == 1e6 &&
                asgd_options{}.weight_decay == 0);
  static_assert(common(rprop_options{}, 1e-2) && rprop_options{}.etas == std::pair{0.5, 1.2} &&
                rprop_options{}.step_sizes == std::pair{1e-6, 50.0});
  static_assert(common(lion_options{}, 1e-4) && lion_options{}.betas == std::pair{0.9, 0.99} &&
                lion_options{}.weight_decay == 0);
}

TEST_CASE("invalid options of optimizers are refused") {
  flat_model<float> model;
  CHECK(error_of([&] { rmsprop{model, {.alpha = -1}}; }) == "rmsprop: Invalid alpha value: -1");
  CHECK(error_of([&] {
          rmsprop{model, {.momentum = -1}};
        }) == "rmsprop: Invalid momentum value: -1");
  CHECK(error_of([&] {
          adagrad{model, {.lr_decay = -1}};
        }) == "adagrad: Invalid lr_decay value: -1");
  CHECK(error_of([&] { adadelta{model, {.rho = 2}}; }) == "adadelta: Invalid rho value: 2");
  CHECK(error_of([&] {
          adamax{model, {.betas = {1, 0.999}}};
        }) == "adamax: Invalid beta parameter at index 0: 1");
  CHECK(error_of([&] {
          nadam{model, {.momentum_decay = -1}};
        }) == "nadam: Invalid momentum_decay value: -1");
  CHECK(error_of([&] {
          radam{model, {.betas = {0.9, 1}}};
        }) == "radam: Invalid beta parameter at index 1: 1");
  CHECK(error_of([&] {
          asgd{model, {.weight_decay = -1}};
        }) == "asgd: Invalid weight_decay value: -1");
  CHECK(error_of([&] { rprop{model, {.etas = {0.5, 1}}}; }) == "rprop: Invalid etaplus value: 1");
  CHECK(error_of([&] { lion{model, {.lr = -1}}; }) == "lion: Invalid learning rate: -1");
}

TEST_CASE("an array of state is made when an option first needs it") {
  flat_model<float> model;
  rmsprop optimizer{model};
  CHECK(!optimizer.state()[2].in_use);
  CHECK(optimizer.state()[2].bytes.empty());
  optimizer.options().momentum = 0.5;
  model.draw_gradients(0);
  optimizer.step();
  CHECK(optimizer.state()[2].name == "momentum_buffer");
  CHECK(optimizer.state()[2].bytes.size() == n * sizeof(float));
  CHECK(!optimizer.state()[3].in_use);
}
