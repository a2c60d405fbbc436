#include "ikebana/replicate/elastic.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/io/safetensors.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/elastic_threads.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/powersgd.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/train/training_state.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using namespace std::chrono_literals;
using ike::dynamic;
using ike::shape;

namespace {

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<7>{}, "tanh"_m = ike::tanh{},
                                     "fc2"_m = ike::lazy_linear<3>{});
constexpr shape rows{dynamic, 5};
constexpr ike::dim_t batch = 12;  // Divisible by 1, 2, 3 and 4 ranks.
const ike::sgd_options options{.lr = 0.1, .momentum = 0.9};

auto fresh() { return ike::initialize<double, rows>(net, ike::seed{1}); }

/// A step on this rank's part of that step's batch.
template <class Model, class Optimizer>
void train_step(Model& model, Optimizer& optimizer, std::int64_t step, int rank, int ranks) {
  const auto x = ike::uniform<double, rows>(ike::seed{static_cast<std::uint64_t>(step)}, batch);
  ike::tensor<std::int64_t, shape{dynamic}> y(shape{batch});
  for (ike::dim_t i = 0; i < batch; ++i) y[i] = (i + step) % 3;
  const ike::dim_t n = batch / ranks;
  model.train_step(
      ike::tensor_view<const double, rows>(x.data() + rank * n * 5, shape{n, 5}),
      ike::tensor_view<const std::int64_t, shape{dynamic}>(y.data() + rank * n, shape{n}),
      ike::cross_entropy{}, optimizer);
}

std::vector<double> trained_alone(std::int64_t steps) {
  auto model = fresh();
  ike::sgd optimizer{model, options};
  for (std::int64_t s = 0; s < steps; ++s) train_step(model, optimizer, s, 0, 1);
  return {model.parameters().begin(), model.parameters().end()};
}

double apart(std::span<const double> a, std::span<const double> b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::fabs(a[i] - b[i]));
  return worst;
}

}  // namespace

TEST_CASE("four train, one throws, three go on, a fourth comes: as one model on the whole batch") {
  constexpr std::int64_t throws_at = 5, waits_at = 10, steps = 16;
  ike::rendezvous place(4, 20s);
  std::atomic<bool> fourth_may_come{false};
  std::vector<std::vector<double>> weights(5), momenta(5);
  std::vector<std::string> ends(5);
  std::vector<std::string> sizes(5);

  const auto work = [&](std::size_t who) {
    try {
      auto member = place.enter();
      // The newcomer starts with another state.
      auto model = ike::replicate(
          ike::initialize<double, rows>(net, ike::seed{who == 4 ? 77u : 1u}), member.group());
      ike::sgd optimizer{model, options};
      bool waited = who == 4;
      member.train(model, optimizer, steps, [&](ike::thread_group& group) {
        const std::int64_t s = model.steps();
        if (who == 1 && s == throws_at) throw std::runtime_error("out of rice");
        if (s == waits_at && !std::exchange(waited, true)) {
          fourth_may_come = true;
          while (!member.should_meet()) std::this_thread::yield();
          return;
        }
        train_step(model, optimizer, s, group.rank(), group.size());
        sizes[who] += std::to_string(group.size());
      });
      weights[who] = {model.parameters().begin(), model.parameters().end()};
      const auto momentum = optimizer.state()[1].bytes;
      momenta[who].resize(momentum.size() / sizeof(double));
      std::ranges::copy(momentum, std::as_writable_bytes(std::span{momenta[who]}).begin());
      CHECK(optimizer.state()[0].bytes[0] == std::byte{steps});
      CHECK(model.group().size() == 4);
    } catch (const std::exception& e) {
      ends[who] = e.what();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t who = 0; who < 4; ++who) threads.emplace_back(work, who);
  while (!fourth_may_come) std::this_thread::sleep_for(1ms);
  threads.emplace_back(work, std::size_t{4});
  for (std::thread& t : threads) t.join();

  CHECK(ends == std::vector<std::string>{"", "out of rice", "", "", ""});
  CHECK(sizes == std::vector<std::string>{"4444433333444444", "44444", "4444433333444444",
                                          "4444433333444444", "444444"});
  const auto expected = trained_alone(steps);
  for (std::size_t who : {0u, 2u, 3u, 4u}) {
    CAPTURE(who);
    CHECK(apart(weights[who], expected) < 1e-14);
    CHECK(weights[who] == weights[0]);
    CHECK(momenta[who] == momenta[0]);
  }
}

TEST_CASE(
    "one of four threads throws: the others hear of it, and training goes on from the last "
    "checkpoint with another size, fifty times") {
  constexpr std::int64_t steps = 8;
  const auto expected = trained_alone(steps);
  const auto path = std::filesystem::temp_directory_path() /
                    ("ikebana_elastic_" + std::to_string(::getpid()) + ".safetensors");
  for (int repetition = 0; repetition < 50; ++repetition) {
    CAPTURE(repetition);
    const int thrower = repetition % 4, at = 1 + repetition % 7, survivors = 1 + repetition % 4;
    std::vector<std::string> heard(4);
    const auto begin = std::chrono::steady_clock::now();
    const auto first_run = [&] {
      ike::launch(ike::threads{4, 20s}, [&](ike::thread_group& group) {
        auto model = ike::replicate(fresh(), group);
        ike::sgd optimizer{model, options};
        try {
          for (int s = 0; s < steps; ++s) {
            if (s == at && group.rank() == thrower) throw std::runtime_error("out of rice");
            train_step(model, optimizer, s, group.rank(), group.size());
            if (group.rank() == 0) ike::save(ike::get_training_state(model, optimizer), path);
          }
        } catch (const ike::communication_error& e) {
          heard[static_cast<std::size_t>(group.rank())] = e.what();
          throw;
        }
      });
    };
    CHECK_THROWS_WITH_AS(first_run(), "out of rice", std::runtime_error);
    CHECK(std::chrono::steady_clock::now() - begin < 20s);
    for (int r = 0; r < 4; ++r) {
      const std::string& text = heard[static_cast<std::size_t>(r)];
      CAPTURE(text);
      if (r == thrower)
        CHECK(text == "");
      else
        CHECK((text.starts_with("rank " + std::to_string(r) + ": all_reduce of ") &&
               text.find(": rank " + std::to_string(thrower) + " failed (waited ") !=
                   std::string::npos));
    }
    ike::launch(ike::threads{survivors, 20s}, [&](ike::thread_group& group) {
      auto model = ike::replicate(fresh(), group);
      ike::sgd optimizer{model, options};
      ike::load_training_state(model, optimizer, ike::load(path));
      std::int64_t made = 0;
      std::memcpy(&made, optimizer.state()[0].bytes.data(), sizeof made);
      CHECK((made == at || (made == at - 1 && thrower != 0)));
      for (std::int64_t s = made; s < steps; ++s)
        train_step(model, optimizer, s, group.rank(), group.size());
      CHECK(apart(model.parameters(), expected) < 1e-14);
    });
  }
  std::filesystem::remove(path);
}

TEST_CASE("a replica goes on in another group, from the newest state, with its hook as new") {
  using policy = ike::replicate_policy<ike::comm_hook<ike::powersgd>>;
  ike::launch(ike::threads{3, 20s}, [&](ike::thread_group& group) {
    ike::thread_group pair = group.split(group.rank() == 2, 0);
    auto model = ike::replicate<policy>(
        ike::initialize<double, rows>(net, ike::seed{group.rank() == 2 ? 5u : 1u}), pair,
        ike::powersgd{{.start_iteration = 2}});
    ike::sgd optimizer{model, options};
    const std::int64_t steps = group.rank() == 2 ? 4 : 3;
    for (std::int64_t s = 0; s < steps; ++s)
      train_step(model, optimizer, s, pair.rank(), pair.size());
    CHECK(model.hook().iteration() == steps);
    std::vector<double> newest(model.parameters().begin(), model.parameters().end());
    group.broadcast(std::span<double>(newest), 2);

    CHECK(model.set_process_group(group, optimizer) == 2);
    CHECK(&model.group() == &group);
    CHECK(model.steps() == 4);
    CHECK(std::ranges::equal(model.parameters(), newest));
    CHECK(optimizer.state()[0].bytes[0] == std::byte{4});
    CHECK(model.hook().iteration() == 0);
    CHECK(model.hook().options().start_iteration == 2);
    for (std::int64_t s = 4; s < 8; ++s) train_step(model, optimizer, s, group.rank(), 3);
    std::vector<double> mine(model.parameters().begin(), model.parameters().end()), first = mine;
    group.broadcast(std::span<double>(first), 0);
    CHECK(mine == first);

    // Another hook; if all are equally new, rank 0 provides the state.
    CHECK(model.set_process_group(group, ike::powersgd{{.rank = 2}}) == 0);
    CHECK(model.hook().options().rank == 2);
  });
}

TEST_CASE(
    "one of two has loaded a checkpoint: both go on from its steps, as if never interrupted") {
  constexpr std::int64_t saved_at = 6, steps = 10;
  ike::single one;
  auto before = ike::replicate(fresh(), one);
  ike::sgd optimizer_before{before, options};
  for (std::int64_t s = 0; s < saved_at; ++s) train_step(before, optimizer_before, s, 0, 1);
  CHECK(before.steps() == saved_at);
  const ike::state_dict checkpoint = ike::get_training_state(before, optimizer_before).clone();

  const auto expected = trained_alone(steps);
  ike::rendezvous place(2, 20s);
  std::vector<std::vector<std::int64_t>> made(2);
  const auto work = [&](std::size_t who) {
    auto member = place.enter();
    auto model =
        ike::replicate(ike::initialize<double, rows>(net, ike::seed{77 + who}), member.group());
    ike::sgd optimizer{model, options};
    if (who == 1) {
      ike::load_training_state(model, optimizer, checkpoint);
      model.set_steps(saved_at);
    }
    member.train(model, optimizer, steps, [&](ike::thread_group& group) {
      made[who].push_back(model.steps());
      train_step(model, optimizer, model.steps(), group.rank(), group.size());
    });
    CHECK(apart(model.parameters(), expected) < 1e-14);
  };
  std::thread other(work, 0);
  work(1);
  other.join();
  CHECK(made[0] == std::vector<std::int64_t>{6, 7, 8, 9});
  CHECK(made[1] == made[0]);
}

TEST_CASE("optimizers and models that differ are refused on every rank, and nothing changes") {
  std::atomic<int> refused{0};
  ike::launch(ike::threads{2, 20s}, [&](ike::thread_group& group) {
    ike::thread_group alone = group.split(group.rank(), 0);
    auto model = ike::replicate(fresh(), alone);
    ike::sgd optimizer{model, {.lr = 0.1, .momentum = group.rank() == 0 ? 0.9 : 0.0}};
    train_step(model, optimizer, group.rank(), 0, 1);
    const std::vector<double> before(model.parameters().begin(), model.parameters().end());
    try {
      model.set_process_group(group, optimizer);
    } catch (const ike::state_error& e) {
      CAPTURE(std::string(e.what()));
      CHECK(std::string(e.what()).find("momentum_buffer") != std::string::npos);
      ++refused;
    }
    CHECK(std::ranges::equal(model.parameters(), before));
    CHECK(&model.group() == &alone);
    train_step(model, optimizer, 1, 0, 1);
  });
  CHECK(refused == 2);
}

TEST_CASE("a member that does not come is no member any more; nobody waits for ever") {
  CHECK_THROWS_AS(ike::rendezvous(0), ike::error);
  ike::rendezvous place(2, 100ms);
  {
    auto early = place.enter();
    CHECK_THROWS_WITH_AS(early.meet(), doctest::Contains("expected 2 members, got 1 (waited 0.1"),
                         ike::communication_error);
  }
  CHECK(place.size() == 0);
  std::atomic<bool> gone_on{false};
  std::thread late([&] {
    auto member = place.enter();
    member.meet();
    CHECK(member.group().size() == 2);
    while (!gone_on) std::this_thread::sleep_for(1ms);
    CHECK_THROWS_WITH_AS(member.meet(), doctest::Contains("went on without this member"),
                         ike::communication_error);
  });
  {
    auto member = place.enter();
    member.meet();
    member.meet();
    CHECK(member.group().size() == 1);
    CHECK_FALSE(member.should_meet());
    gone_on = true;
    late.join();
    CHECK(place.size() == 1);
  }
}
