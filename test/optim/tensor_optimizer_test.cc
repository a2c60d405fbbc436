#include "ikebana/optim/tensor_optimizer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "flat_model.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim.hpp"
#include "ikebana/optim/optimizer_state_dict.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/replicate/thread_group.hpp"
#include "ikebana/train/training_state.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/load_recorded.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

constexpr std::size_t n = 241;  // Of all parameters.

constexpr auto net =
    ike::sequential("conv"_m = ike::conv2d<3, 4, ike::kernel<2, 3>>{}, "flatten"_m = ike::flatten{},
                    "fc1"_m = ike::linear<16, 6>{}, "fc2"_m = ike::linear<6, 9>{});

template <class T>
auto make(std::uint64_t seed = 1) {
  return ike::initialize<T, shape{2, 3, 3, 4}>(net, ike::seed{seed});
}

template <class T>
std::span<const T> recorded(const std::string& name) {
  static const ike::state_dict all = load_recorded("tensor_optimizers");
  const auto bytes = all.at((sizeof(T) == 4 ? "f32/" : "f64/") + name).bytes;
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

/// Calls f(flat, i) for every element: its places in the model's arrays and in recorded ones.
template <class Model, class F>
void for_each_element(Model& model, F&& f) {
  std::size_t i = 0;
  const auto parameters = model.current_program().all_parameters();
  for (std::size_t k = 0; k < parameters.size(); ++k)
    for (ike::dim_t j = 0; j < parameters[k].spec.extents.numel(); ++j)
      f(static_cast<std::size_t>(model.layout().offsets[k] + j), i++);
  REQUIRE(i == n);
}

template <class Model>
void give_parameters(Model& model) {
  const auto from = recorded<typename Model::value_type>("parameters");
  for_each_element(model, [&](std::size_t to, std::size_t i) { model.parameters()[to] = from[i]; });
}
template <class Model>
void give_gradients(Model& model, std::size_t step) {
  const auto from = recorded<typename Model::value_type>("gradients");
  for_each_element(
      model, [&](std::size_t to, std::size_t i) { model.gradients()[to] = from[step * n + i]; });
}

template <class Model>
double difference(Model& model, std::span<const typename Model::value_type> expected) {
  double most = 0;
  for_each_element(model, [&](std::size_t at, std::size_t i) {
    const double d =
        std::abs(static_cast<double>(model.parameters()[at]) - static_cast<double>(expected[i]));
    if (!(d <= most) && !std::isnan(most)) most = d;  // NaN is the most.
  });
  return most;
}

/// Takes 20 steps, the last ten by another optimizer, in parts, that takes over the state.
template <class T, template <class> class Optimizer, class Options>
void follow(const std::string& name, const Options& options, double tolerance) {
  CAPTURE(name);
  auto model = make<T>();
  give_parameters(model);
  Optimizer<T> first{model, options}, second{model, options};
  {
    // A product allocates its packing buffer at its first use.
    auto other = make<T>();
    Optimizer<T>{other, options}.step();
  }
  const auto end = static_cast<ike::dim_t>(model.parameters().size());
  const ike::dim_t middle = model.layout().offsets[2];
  long allocations = 0;
  for (std::size_t step = 0; step < 20; ++step) {
    give_gradients(model, step);
    if (step == 10) copy_state(second, first);
    const long before = allocation_count_here;
    if (step < 10) {
      first.step();
    } else {
      second.begin_step();
      second.step_elements(middle, end);
      second.step_elements(0, middle);
    }
    allocations += allocation_count_here - before;
  }
  CHECK(difference(model, recorded<T>(name)) <= tolerance);
  CHECK(allocations == 0);
}

template <template <class> class Optimizer, class Options>
void check(const std::string& name, const Options& options, double of_float, double of_double) {
  follow<float, Optimizer>(name, options, of_float);
  follow<double, Optimizer>(name, options, of_double);
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

}  // namespace

TEST_CASE("lamb, adafactor, muon and sparse_adam follow their formulas") {
  check<ike::lamb>("lamb", ike::lamb_options{}, 2e-6, 1e-12);
  check<ike::lamb>(
      "lamb_options",
      ike::lamb_options{
          .lr = 0.05, .betas = {0.5, 0.9}, .eps = 1e-3, .weight_decay = 0.1, .maximize = true},
      5e-6, 1e-12);
  check<ike::adafactor>("adafactor", ike::adafactor_options{}, 2e-6, 1e-12);
  check<ike::adafactor>("adafactor_options",
                        ike::adafactor_options{.lr = 0.3,
                                               .beta2_decay = -0.5,
                                               .eps1 = 1e-2,
                                               .eps2 = 0.5,
                                               .d = 1.5,
                                               .weight_decay = 0.1,
                                               .maximize = true},
                        5e-6, 1e-12);
  check<ike::muon>("muon", ike::muon_options{}, 2e-5, 1e-12);
  check<ike::muon>("muon_options",
                   ike::muon_options{.lr = 0.05,
                                     .momentum = 0.5,
                                     .nesterov = false,
                                     .ns_steps = 3,
                                     .match_rms_adamw = true,
                                     .betas = {0.5, 0.9},
                                     .adamw_eps = 1e-3,
                                     .maximize = true},
                   2e-5, 1e-12);
  check<ike::sparse_adam>("sparse_adam", ike::sparse_adam_options{}, 2e-6, 1e-12);
  check<ike::sparse_adam>("sparse_adam_options",
                          ike::sparse_adam_options{.lr = 0.05, .betas = {0.5, 0.9}, .eps = 1e-3},
                          5e-6, 1e-12);
}

TEST_CASE("weight decay of nadam and radam can be decoupled, as in PyTorch 2") {
  check<ike::nadam>("nadam_decoupled",
                    ike::nadam_options{.lr = 0.05,
                                       .betas = {0.5, 0.9},
                                       .eps = 1e-3,
                                       .weight_decay = 0.1,
                                       .decoupled_weight_decay = true},
                    5e-6, 1e-7);
  check<ike::radam>("radam_decoupled",
                    ike::radam_options{.lr = 0.05,
                                       .betas = {0.5, 0.9},
                                       .eps = 1e-3,
                                       .weight_decay = 0.1,
                                       .decoupled_weight_decay = true},
                    5e-6, 1e-12);
}

TEST_CASE("adafactor keeps the averages of rows and columns, and saves them by parameter") {
  auto a = make<float>(), b = make<float>(2);
  ike::adafactor of_a{a}, of_b{b};
  for (std::size_t step = 0; step < 3; ++step) {
    give_gradients(a, step);
    of_a.step();
  }
  const auto dict = ike::get_optimizer_state_dict(a, of_a);
  CHECK(dict.at("state.fc1.weight.row_var").extents == shape{6, 1});
  CHECK(dict.at("state.fc1.weight.col_var").extents == shape{1, 16});
  CHECK(dict.at("state.conv.weight.row_var").extents == shape{4, 3, 2, 1});
  CHECK(dict.at("state.conv.weight.col_var").extents == shape{4, 3, 1, 3});
  CHECK(dict.at("state.fc1.bias.variance").extents == shape{6});
  CHECK(!dict.contains("state.fc1.weight.variance"));
  CHECK(!dict.contains("state.fc1.bias.row_var"));
  CHECK(dict.contains("state.fc2.bias.step"));

  // Both kinds of checkpoints resume with the same bits.
  const auto run = ike::get_training_state(a, of_a);
  CHECK(run.at("optimizer.row_var.fc1.weight").extents == shape{6, 1});
  CHECK(run.at("optimizer.variance.fc1.bias").extents == shape{6});
  CHECK(!run.contains("optimizer.row_var"));
  ike::load_training_state(b, of_b, run);
  auto c = make<float>(3);
  ike::adafactor of_c{c};
  ike::load_state_dict(c, ike::get_state_dict(a));
  ike::set_optimizer_state_dict(c, of_c, dict);
  give_gradients(a, 3);
  give_gradients(b, 3);
  give_gradients(c, 3);
  of_a.step();
  of_b.step();
  of_c.step();
  CHECK(std::ranges::equal(a.parameters(), b.parameters()));
  CHECK(std::ranges::equal(a.parameters(), c.parameters()));
}

TEST_CASE("muon leaves groups with use_muon = false to adamw") {
  auto a = make<double>(), b = make<double>();
  give_parameters(a);
  give_parameters(b);
  ike::muon optimizer{a, {.adamw_eps = 1e-8}, ike::group<"fc2">{.lr = 0.02, .use_muon = false}};
  ike::adamw other{b, {.lr = 0.02, .betas = {0.9, 0.95}, .weight_decay = 0.1}};
  for (std::size_t step = 0; step < 3; ++step) {
    give_gradients(a, step);
    give_gradients(b, step);
    optimizer.step();
    other.step();
  }
  CHECK(std::ranges::equal(a["fc2.weight"_s], b["fc2.weight"_s]));
  CHECK(!std::ranges::equal(a["fc1.weight"_s], b["fc1.weight"_s]));
  const auto dict = ike::get_optimizer_state_dict(a, optimizer);
  CHECK(dict.contains("state.fc2.weight.exp_avg_sq"));
  CHECK(!dict.contains("state.fc2.weight.momentum_buffer"));
  CHECK(dict.contains("state.fc1.weight.momentum_buffer"));
}

TEST_CASE("steps of whole parameters are refused for ranges that divide one") {
  auto model = make<float>();
  ike::lamb optimizer{model};
  optimizer.begin_step();
  const auto before = std::vector<float>(model.parameters().begin(), model.parameters().end());
  CHECK(error_of([&] { optimizer.step_elements(0, 3); }) ==
        "lamb: a step in parts needs ranges of whole parameters, and this one divides one");
  CHECK(std::ranges::equal(before, model.parameters()));
  CHECK(error_of([&] { ike::lamb{model, {.eps = -1}}; }) == "lamb: Invalid epsilon value: -1");
  CHECK(error_of([&] { ike::muon{model, {.momentum = 1}}; }) == "muon: Invalid momentum value: 1");
  CHECK(error_of([&] {
          ike::adafactor{model, {.d = 0.5}};
        }) == "adafactor: Invalid clipping threshold: 0.5");
  CHECK(error_of([&] {
          ike::sparse_adam{model, {.eps = 0}};
        }) == "sparse_adam: Invalid epsilon value: 0");
}

TEST_CASE("optimizers of whole parameters step in backward") {
  const auto x = ike::uniform<float, shape{2, 3, 3, 4}>(ike::seed{5});
  const auto t = ike::uniform<float, shape{2, 9}>(ike::seed{6});
  std::vector<float> last[2];
  const auto train = [&]<class Policy>(std::size_t k, Policy) {
    ike::launch(ike::threads{2}, [&](ike::thread_group& group) {
      auto model = ike::replicate<Policy>(make<float>(), group);
      ike::adafactor optimizer{model};
      for (int i = 0; i < 3; ++i) model.train_step(x, t, ike::mse_loss{}, optimizer);
      if (group.rank() == 0) last[k].assign(model.parameters().begin(), model.parameters().end());
    });
  };
  train(0, ike::replicate_policy<>{});
  train(1, ike::replicate_policy<ike::optimizer_in_backward<true>>{});
  CHECK(!last[0].empty());
  CHECK(last[0] == last[1]);
}
