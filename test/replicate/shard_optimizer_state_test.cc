// What a sharded optimizer keeps, gathers, clips and saves.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/train/training_state.hpp"
#include "shard_optimizer_checks.hpp"
#include "test/replicate/on_threads.hpp"

namespace ike = ikebana;
using namespace ike::literals;
namespace checks = shard_optimizer_checks;
using namespace optimizer_run;

TEST_CASE("Gradients accumulate as without") {
  on_threads([](auto& group) { return checks::accumulation<float>(group); });
}

TEST_CASE("A rank keeps its part of what the optimizer remembers") {
  on_threads([](auto& group) { return checks::memory<double>(group); });
}

TEST_CASE("clip_grad_norm takes the norm over all ranks' parts") {
  on_threads([](auto& group) { return checks::clipping<double>(group); });
}

TEST_CASE("The state is whole when it is saved, and goes into any other") {
  on_threads([](auto& group) { return checks::state<float>(group); });
}

TEST_CASE("Training goes on with another number of ranks from a saved state") {
  ike::state_dict saved;
  std::vector<float> parameters;
  ike::launch(ike::threads{3}, [&](auto& group) {
    auto model = ike::replicate<checks::sharded<>>(fresh<float>(network), group);
    ike::adam optimizer{model, {.lr = 0.01}};
    train(model, optimizer, group.rank(), 0, 3);
    ike::state_dict mine = ike::get_optimizer_state_dict(model, optimizer);
    if (group.rank() != 0) return;
    saved = std::move(mine);
    parameters.assign(model.parameters().begin(), model.parameters().end());
  });
  for (int ranks : {1, 2, 4})
    ike::launch(ike::threads{ranks}, [&](auto& group) {
      const auto go_on = [&](auto& model) {
        std::ranges::copy(parameters, model.parameters().begin());
        ike::adam optimizer{model, {.lr = 0.01}};
        ike::set_optimizer_state_dict(model, optimizer, saved);
        train(model, optimizer, group.rank(), 3, 6);
      };
      auto shared = ike::replicate<checks::sharded<>>(fresh<float>(network), group);
      auto whole = ike::replicate<plain<>>(fresh<float>(network), group);
      go_on(shared);
      go_on(whole);
      CHECK(same_parameters(shared, whole));
    });
}

TEST_CASE("get_training_state is that of replicas that do not share, and is loaded by any") {
  for (int ranks : {1, 2, 3})
    ike::launch(ike::threads{ranks}, [&](auto& group) {
      auto shared = ike::replicate<checks::sharded<>>(fresh<float>(network), group);
      auto whole = ike::replicate<plain<>>(fresh<float>(network), group);
      ike::adam mine{shared, {.lr = 0.01}};
      ike::adam reference{whole, {.lr = 0.01}};
      train(shared, mine, group.rank(), 0, 2);
      train(whole, reference, group.rank(), 0, 2);
      const ike::state_view saved = ike::get_training_state(shared, mine);
      CHECK(checks::differences(saved, ike::get_training_state(whole, reference)) == 0);
      auto other = ike::replicate<checks::sharded<>>(fresh<float>(network), group);
      ike::adam others{other, {.lr = 0.01}};
      ike::load_training_state(other, others, saved);
      train(whole, reference, group.rank(), 2, 4);
      train(other, others, group.rank(), 2, 4);
      CHECK(same_parameters(other, whole));
    });
}

TEST_CASE("Steps are counted for each parameter where backward may leave some out") {
  constexpr auto branches = ike::sequential(
      "in"_m = ike::linear<5, 4>{},
      "path"_m = ike::choose("a"_m = ike::linear<4, 4>{}, "b"_m = ike::linear<4, 4>{}),
      "out"_m = ike::linear<4, 3>{});
  using finds = ike::find_unused_parameters<true>;
  for (int ranks : {1, 2, 3})
    ike::launch(ike::threads{ranks}, [&](auto& group) {
      auto shared = ike::replicate<checks::sharded<finds>>(fresh<float>(branches), group);
      auto whole = ike::replicate<plain<finds>>(fresh<float>(branches), group);
      ike::adam mine{shared, {.lr = 0.01}};
      ike::adam reference{whole, {.lr = 0.01}};
      const auto go = [&](auto& model, auto& optimizer) {
        for (int s = 0; s < 4; ++s) {
          model.choose("path"_s, s == 2 ? 1 : s == 3 ? group.rank() % 2 : 0);
          train(model, optimizer, group.rank(), s, s + 1);
        }
      };
      go(shared, mine);
      go(whole, reference);
      CHECK(same_parameters(shared, whole));
      const ike::state_dict saved = ike::get_optimizer_state_dict(shared, mine);
      CHECK(checks::differences(saved, ike::get_optimizer_state_dict(whole, reference)) == 0);
      const auto steps = [&](const char* name) {
        return *saved.at(name).template view<std::int64_t, shape{}>().data();
      };
      CHECK(steps("state.in.weight.step") == 4);
      CHECK(steps("state.path.a.weight.step") == 3);
      CHECK(steps("state.path.b.bias.step") == (ranks == 1 ? 1 : 2));
      auto other = ike::replicate<checks::sharded<finds>>(fresh<float>(branches), group);
      ike::adam others{other, {.lr = 0.01}};
      ike::set_optimizer_state_dict(other, others, saved);
      CHECK(checks::differences(ike::get_optimizer_state_dict(other, others), saved) == 0);
    });
}
