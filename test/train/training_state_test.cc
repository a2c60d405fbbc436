#include "ikebana/train/training_state.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/io/safetensors.hpp"
#include "ikebana/optim/lr_scheduler.hpp"
#include "ikebana/optim/reduce_lr_on_plateau.hpp"
#include "ikebana/optim/schedule/cyclic_lr.hpp"
#include "ikebana/replicate/launch.hpp"
#include "test/replicate/invariant_checks.hpp"

namespace ike = ikebana;
using namespace invariant_checks;
using ike::threads;

namespace {

std::vector<std::string> names(const ike::state_dict& dict) {
  std::vector<std::string> all;
  for (const auto& e : dict) all.push_back(e.name);
  return all;
}

std::string state_error(auto&& f) {
  try {
    f();
  } catch (const ike::state_error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

constexpr auto small = ike::sequential("fc"_m = ike::lazy_linear<2>{});
constexpr shape in{4, 3};

}  // namespace

TEST_CASE("Training resumed in a world of another size ends with the same bits") {
  std::uint64_t uninterrupted = 0;
  ike::launch(threads{1}, [&](ike::process_group auto& group) {
    auto model = ike::replicate<policy<8>>(initial<float>(), group);
    auto optimizer = make_adam{}(model);
    const float loss = train<float>(model, optimizer, 0, 20, 16, 11);
    uninterrupted = hash_of(model, loss);
  });
  const auto path = std::filesystem::temp_directory_path() / "ikebana_training_state.safetensors";
  for (const auto& worlds : {std::array{2, 4}, std::array{4, 1}, std::array{1, 3}}) {
    const int from = worlds[0], to = worlds[1];
    CAPTURE(from);
    ike::launch(threads{from}, [&](ike::process_group auto& group) {
      const auto state = state_after<float, 8, make_adam>(group, 10);
      if (group.rank() == 0) ike::save(state, path);
    });
    const auto hashes = ike::launch(threads{to}, [&](ike::process_group auto& group) {
      return hash_resumed<float, 8, make_adam>(group, ike::load(path), 10, 20);
    });
    for (std::uint64_t h : hashes) CHECK(h == uninterrupted);
  }
  std::filesystem::remove(path);
}

TEST_CASE("A plain model resumes too, dropout included") {
  const auto step = [](auto& model, auto& optimizer, int s) {
    const batch<float> b(s, 8);
    return model.train_step(b.x, b.labels, ike::cross_entropy{}, optimizer);
  };
  auto whole = initial<float>();
  auto optimizer = make_sgd{}(whole);
  for (int s = 0; s < 3; ++s) step(whole, optimizer, s);
  const auto state = ike::get_training_state(whole, optimizer).clone();
  float loss = 0;
  for (int s = 3; s < 6; ++s) loss = step(whole, optimizer, s);

  auto resumed = initial<float>(5);
  auto other = make_sgd{}(resumed);
  ike::load_training_state(resumed, other, state);
  float again = 0;
  for (int s = 3; s < 6; ++s) again = step(resumed, other, s);
  CHECK(hash_of(resumed, again) == hash_of(whole, loss));
}

TEST_CASE("The names of a state") {
  auto model = ike::initialize<float, in>(small, ike::seed{1});
  ike::adam optimizer{model};
  CHECK(names(ike::get_training_state(model, optimizer)) ==
        std::vector<std::string>{
            "model.fc.weight", "model.fc.bias", "optimizer.step", "optimizer.exp_avg.fc.weight",
            "optimizer.exp_avg.fc.bias", "optimizer.exp_avg_sq.fc.weight",
            "optimizer.exp_avg_sq.fc.bias", "optimizer.options.lr", "optimizer.options.beta1",
            "optimizer.options.beta2", "optimizer.options.eps", "optimizer.options.weight_decay",
            "optimizer.options.maximize", "optimizer.options.amsgrad", "optimizer.options.max_norm",
            "random"});
}

TEST_CASE("A state of another optimizer or model is refused before anything changed") {
  auto model = ike::initialize<float, in>(small, ike::seed{1});
  ike::adam adam{model};
  ike::sgd sgd{model, {.lr = 0.1, .momentum = 0.9}};
  const auto before = ike::get_training_state(model, adam).clone();

  auto other = ike::initialize<float, in>(small, ike::seed{2});
  ike::sgd of_other{other, {.lr = 0.1, .momentum = 0.9}};
  const auto state = ike::get_training_state(other, of_other).clone();
  CHECK(state_error([&] {
          ike::load_training_state(model, adam, state);
        }).starts_with("load_state_dict: missing keys: optimizer.exp_avg.fc.weight, "));

  auto wide = ike::initialize<float, shape{4, 5}>(small, ike::seed{2});
  ike::sgd of_wide{wide, {.lr = 0.1, .momentum = 0.9}};
  CHECK(state_error([&] {
          ike::load_training_state(model, sgd, ike::get_training_state(wide, of_wide));
        }) ==
        "load_state_dict: mismatched: optimizer.momentum_buffer.fc.weight expects float32 [2, 3], "
        "got float32 [2, 5]");

  const auto after = ike::get_training_state(model, adam).clone();
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(std::equal(before[i].bytes.begin(), before[i].bytes.end(), after[i].bytes.begin(),
                     after[i].bytes.end()));
  }
}

namespace {

/// Writes to a state that owns its memory.
template <class T>
void write(const ike::state_dict& dict, const char* name, std::size_t i, T value) {
  reinterpret_cast<T*>(const_cast<std::byte*>(dict.at(name).bytes.data()))[i] = value;
}

}  // namespace

TEST_CASE("The options of the optimizer are in a state: compared, restored or ignored") {
  auto model = ike::initialize<float, in>(small, ike::seed{1});
  ike::adam saved{model, {.lr = 0.05, .betas = {0.8, 0.999}, .eps = 1e-6, .maximize = true}};
  const ike::state_dict state = ike::get_training_state(model, saved).clone();
  CHECK(*state.at("optimizer.options.lr").view<double, shape{}>().data() == 0.05);
  CHECK(state.at("optimizer.options.maximize").bytes[0] == std::byte{1});
  ike::load_training_state(model, saved, state);

  auto other = ike::initialize<float, in>(small, ike::seed{2});
  const auto before = other.snapshot();
  ike::adam optimizer{other, {.lr = 0.1, .betas = {0.8, 0.999}, .eps = 1e-6}};
  CHECK(state_error([&] { ike::load_training_state(other, optimizer, state); }) ==
        "load_state_dict: the optimizer has other options (saved_options::restore takes those "
        "saved, ignore keeps its own); mismatched: optimizer.options.lr expects 0.1, got 0.05, "
        "optimizer.options.maximize expects 0, got 1");
  CHECK(std::ranges::equal(before.at("fc.weight").bytes,
                           ike::get_state_dict(other).at("fc.weight").bytes));
  ike::load_training_state(other, optimizer, state, ike::saved_options::ignore);
  CHECK(optimizer.options().lr == 0.1);
  ike::load_training_state(other, optimizer, state, ike::saved_options::restore);
  CHECK(optimizer.options().lr == 0.05);
  CHECK(optimizer.options().maximize);
  CHECK(optimizer.options().max_norm == std::numeric_limits<double>::infinity());
  ike::load_training_state(other, optimizer, state);

  // Invalid options are refused before anything has changed.
  const ike::state_dict nonsense = state.clone();
  write(nonsense, "optimizer.options.lr", 0, -1.0);
  CHECK(state_error([&] {
          ike::load_training_state(other, optimizer, nonsense, ike::saved_options::restore);
        }) == "load_training_state: adam: Invalid learning rate: -1");
  CHECK(optimizer.options().lr == 0.05);
}

TEST_CASE("Training with a schedule resumes with the same bits") {
  const auto check = [](auto schedule, const char* name) {
    CAPTURE(name);
    const auto step = [](auto& model, auto& optimizer, auto& scheduler, int s) {
      const batch<float> b(s, 8);
      const float loss = model.train_step(b.x, b.labels, ike::cross_entropy{}, optimizer);
      if constexpr (requires { scheduler.step(loss); })
        scheduler.step(1);
      else
        scheduler.step();
      return loss;
    };
    auto whole = initial<float>();
    ike::adam optimizer{whole, {.lr = 0.02}};
    auto scheduler = schedule(optimizer);
    for (int s = 0; s < 4; ++s) step(whole, optimizer, scheduler, s);
    const auto state = ike::get_training_state(whole, optimizer, scheduler).clone();
    float loss = 0;
    for (int s = 4; s < 9; ++s) loss = step(whole, optimizer, scheduler, s);

    auto resumed = initial<float>(5);
    ike::adam other{resumed, {.lr = 0.02}};
    auto next = schedule(other);
    ike::load_training_state(resumed, other, next, state);
    float again = 0;
    for (int s = 4; s < 9; ++s) again = step(resumed, other, next, s);
    CHECK(hash_of(resumed, again) == hash_of(whole, loss));
    CHECK(other.options().lr == optimizer.options().lr);
    CHECK(other.options().betas.first == optimizer.options().betas.first);
    CHECK(other.options().lr != 0.02);

    // Neither is loaded without the other.
    CHECK(state_error([&] {
            ike::load_training_state(resumed, other, state);
          }).find("lr_scheduler.last_epoch") != std::string::npos);
    const auto without = ike::get_training_state(whole, optimizer).clone();
    CHECK(state_error([&] {
            ike::load_training_state(resumed, other, next, without);
          }).find("lr_scheduler.last_epoch") != std::string::npos);
  };
  check(
      [](auto& optimizer) {
        return ike::lr_scheduler{optimizer, ike::step_lr{2, 0.5}};
      },
      "step_lr");
  check(
      [](auto& optimizer) {
        return ike::lr_scheduler{optimizer, ike::one_cycle_lr{.max_lr = 0.05, .total_steps = 20}};
      },
      "one_cycle_lr");
  check(
      [](auto& optimizer) {
        return ike::reduce_lr_on_plateau{optimizer, {.factor = 0.5, .patience = 1}};
      },
      "reduce_lr_on_plateau");
}

TEST_CASE("The rate that a schedule started from is compared, restored or ignored") {
  auto model = ike::initialize<float, in>(small, ike::seed{1});
  ike::adam saved{model, {.lr = 0.1}};
  ike::lr_scheduler first{saved, ike::exponential_lr{0.5}};
  first.step();
  const ike::state_dict state = ike::get_training_state(model, saved, first).clone();

  auto other = ike::initialize<float, in>(small, ike::seed{2});
  ike::adam optimizer{other, {.lr = 0.2}};
  ike::lr_scheduler second{optimizer, ike::exponential_lr{0.5}};
  CHECK(state_error([&] {
          ike::load_training_state(other, optimizer, second, state);
        }).find("mismatched: lr_scheduler.initial_lr expects 0.2, got 0.1") != std::string::npos);
  CHECK(second.last_epoch() == 0);
  CHECK(optimizer.options().lr == 0.2);
  ike::load_training_state(other, optimizer, second, state, ike::saved_options::ignore);
  CHECK(second.last_epoch() == 1);
  CHECK(optimizer.options().lr == 0.1);
  ike::load_training_state(other, optimizer, second, state, ike::saved_options::restore);
  CHECK(second.initial_lr() == 0.1);
  CHECK(optimizer.options().lr == 0.05);

  // A momentum that the schedule does not set is compared.
  ike::adam with_beta{other, {.lr = 0.1, .betas = {0.7, 0.999}}};
  ike::lr_scheduler third{with_beta, ike::exponential_lr{0.5}};
  CHECK(state_error([&] {
          ike::load_training_state(other, with_beta, third, state);
        }).find("optimizer.options.beta1 expects 0.7, got 0.9") != std::string::npos);
}

TEST_CASE("A schedule's state that cannot be is refused before anything has changed") {
  auto model = ike::initialize<float, in>(small, ike::seed{1});
  ike::adam optimizer{model, {.lr = 0.1}};
  ike::lr_scheduler scheduler{optimizer, ike::one_cycle_lr{.max_lr = 0.1, .total_steps = 10}};
  const ike::state_dict state = ike::get_training_state(model, optimizer, scheduler).clone();
  const double lr = optimizer.options().lr;
  const auto refused = [&](const char* name, auto value) {
    const ike::state_dict nonsense = state.clone();
    write(nonsense, name, 0, value);
    const std::string text =
        state_error([&] { ike::load_training_state(model, optimizer, scheduler, nonsense); });
    CHECK(optimizer.options().lr == lr);
    CHECK(scheduler.last_epoch() == 0);
    return text;
  };
  CHECK(refused("lr_scheduler.last_epoch", std::int64_t{-1}) ==
        "lr_scheduler.last_epoch: expected a number of steps, got -1");
  CHECK(refused("lr_scheduler.last_epoch", std::int64_t{11}) ==
        "load_training_state: one_cycle_lr: step 11 is beyond the last of 10");
  CHECK(refused("lr_scheduler.initial_lr", -1.0) ==
        "lr_scheduler.initial_lr: expected a number from 0 on, got -1");
}

TEST_CASE("Every option that an optimizer's numbers depend on is saved") {
  const auto count = [](auto options) {
    int n = 0;
    ike::detail::for_each_option(options, [&](const char*, auto) { ++n; });
    return n;
  };
  // All options but error_if_nonfinite. New members must be added here.
  [[maybe_unused]] auto [lr, momentum, dampening, weight_decay, nesterov, maximize, max_norm,
                         error] = ike::sgd_options{};
  CHECK(count(ike::sgd_options{}) == 7);
  [[maybe_unused]] auto [lr1, betas1, eps, decay1, amsgrad1, maximize1, max_norm1, error1] =
      ike::adam_options{};
  CHECK(count(ike::adam_options{}) == 8);
  [[maybe_unused]] auto [lr2, betas2, eps2, decay2, amsgrad2, maximize2, max_norm2, error2] =
      ike::adamw_options{};
  CHECK(count(ike::adamw_options{}) == 8);
}

TEST_CASE("A state from before options were saved loads, one of a later version does not") {
  auto model = ike::initialize<float, in>(small, ike::seed{1});
  ike::adam optimizer{model, {.lr = 0.05}};
  ike::state_dict state = ike::get_training_state(model, optimizer).clone();
  CHECK(*state.find_metadata("ikebana.training_state") == "2");
  std::vector<std::string> options;
  for (const auto& e : state)
    if (e.name.starts_with("optimizer.options.")) options.push_back(e.name);
  CHECK(options.size() == 8);
  for (const std::string& name : options) state.erase(name);
  ike::adam other{model, {.lr = 0.1}};
  CHECK(state_error([&] {
          ike::load_training_state(model, other, state);
        }).starts_with("load_state_dict: missing keys: optimizer.options.lr, "));
  state.set_metadata(std::vector<std::pair<std::string, std::string>>{});
  ike::load_training_state(model, other, state);
  CHECK(other.options().lr == 0.1);
  state.set_metadata("ikebana.training_state", "3");
  CHECK(state_error([&] { ike::load_training_state(model, other, state); }) ==
        "load_training_state: expected a state of version 2 or before, got version 3");
}

TEST_CASE("A state with counters that cannot be is refused before anything has changed") {
  auto model = ike::initialize<float, in>(small, ike::seed{1});
  ike::adam optimizer{model};
  const auto before = ike::get_training_state(model, optimizer).clone();
  auto source = ike::initialize<float, in>(small, ike::seed{2});
  ike::adam of_source{source};
  const auto why = [&](const char* name, std::size_t i) {
    const ike::state_dict state = ike::get_training_state(source, of_source).clone();
    write(state, name, i, std::int64_t{-5});
    return state_error([&] { ike::load_training_state(model, optimizer, state); });
  };
  CHECK(why("optimizer.step", 0) == "optimizer.step: expected a number of steps, got -5");
  CHECK(why("random", 2) == "random: expected a number of steps, got -5");
  CHECK(why("random", 0) == "nothing was thrown");  // a seed of any bits
  ike::load_training_state(model, optimizer, before);
  CHECK(why("optimizer.step", 0) != "nothing was thrown");
  const auto after = ike::get_training_state(model, optimizer).clone();
  for (const auto& e : before) CHECK(std::ranges::equal(e.bytes, after.at(e.name).bytes));
}

TEST_CASE("Steps are of 64 bits: those beyond 32 are saved, and draw other numbers") {
  constexpr auto dropping =
      ike::sequential("drop"_m = ike::dropout{0.5}, "fc"_m = ike::lazy_linear<2>{});
  constexpr shape wide{8, 32};
  auto model = ike::initialize<float, wide>(dropping, ike::seed{1});
  ike::sgd optimizer{model, {.lr = 0.1}};
  const auto x = ike::ones<float, wide>();
  const auto outputs_at = [&](std::uint64_t step) {
    model.set_random_step(step);
    const auto y = model(x);
    CHECK(model.random_step() == step + 1);
    return std::vector<float>(y.data(), y.data() + y.size());
  };
  constexpr std::uint64_t beyond = std::uint64_t{1} << 32;
  const auto first = outputs_at(4);
  CHECK(outputs_at(4) == first);
  CHECK(outputs_at(beyond + 4) != first);
  CHECK(outputs_at(2 * beyond + 4) != outputs_at(beyond + 4));
  model.set_random_step(3 * beyond + 7);
  const auto state = ike::get_training_state(model, optimizer).clone();
  model.set_random_step(0);
  ike::load_training_state(model, optimizer, state);
  CHECK(model.random_step() == 3 * beyond + 7);
}

TEST_CASE("A state of training tells the versions of its modules") {
  auto model = initial<float>();
  auto optimizer = make_sgd{}(model);
  ike::state_dict state = ike::get_training_state(model, optimizer).clone();
  CHECK(state.version("norm") == 2);
  ike::load_training_state(model, optimizer, state);
  const auto path = std::filesystem::temp_directory_path() / "ikebana_versions.safetensors";
  ike::save(state, path);
  state = ike::load(path);
  std::filesystem::remove(path);
  CHECK(state.version("norm") == 2);
  ike::load_training_state(model, optimizer, state);
  state.erase("model.norm.num_batches_tracked");
  CHECK(state_error([&] { ike::load_training_state(model, optimizer, state); }) ==
        "load_state_dict: missing keys: norm.num_batches_tracked");
  state.set_version("norm", 1);
  ike::load_training_state(model, optimizer, state);
}
