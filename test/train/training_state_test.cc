#include "ikebana/train/training_state.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ikebana/io/safetensors.hpp"
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
        std::vector<std::string>{"model.fc.weight", "model.fc.bias", "optimizer.step",
                                 "optimizer.exp_avg.fc.weight", "optimizer.exp_avg.fc.bias",
                                 "optimizer.exp_avg_sq.fc.weight", "optimizer.exp_avg_sq.fc.bias",
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
