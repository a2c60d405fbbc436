// failing_rank HOW: the last rank ends in the way given by HOW; the others print what they caught.
// failing_rank train SEED FOLDER: of each three ranks, which train a model together, one is killed;
// the other two continue without it, and from the last checkpoint. Each that did prints "went on".
// failing_rank shrink: the last rank dies, then the last remaining one throws, and so on
// alternately, until two are left.
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/io/safetensors.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/mpi_group.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/train/training_state.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

/// One write, so that the lines of two ranks do not mix.
void say(const std::string& line) {
  if (::write(STDOUT_FILENO, (line + "\n").data(), line.size() + 1) < 0) std::_Exit(2);
}

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<33>{}, "tanh"_m = ike::tanh{},
                                     "fc2"_m = ike::lazy_linear<3>{});
constexpr shape rows{dynamic, 5};
constexpr ike::dim_t batch = 6;
constexpr std::int64_t steps = 12;
constexpr auto timeout = std::chrono::seconds(20);

/// A replica on a group and its optimizer.
template <class Group>
struct training {
  decltype(ike::replicate(ike::initialize<double, rows>(net, ike::seed{1}),
                          std::declval<Group&>())) model;
  ike::sgd<double> optimizer{model, {.lr = 0.1, .momentum = 0.9}};

  explicit training(Group& group)
      : model{ike::replicate(ike::initialize<double, rows>(net, ike::seed{1}), group)} {}

  /// The number of steps in its weights.
  std::int64_t steps_made() {
    std::int64_t made = 0;
    std::memcpy(&made, optimizer.state()[0].bytes.data(), sizeof made);
    return made;
  }

  void step() {
    const std::int64_t s = steps_made();
    const auto x = ike::uniform<double, rows>(ike::seed{static_cast<std::uint64_t>(s)}, batch);
    ike::tensor<std::int64_t, shape{dynamic}> y(shape{batch});
    for (ike::dim_t i = 0; i < batch; ++i) y[i] = (i + s) % 3;
    const ike::dim_t n = batch / model.group().size(), first = model.group().rank() * n;
    model.train_step(
        ike::tensor_view<const double, rows>(x.data() + first * 5, shape{n, 5}),
        ike::tensor_view<const std::int64_t, shape{dynamic}>(y.data() + first, shape{n}),
        ike::cross_entropy{}, optimizer);
  }

  /// Whether the remaining steps lead to the result of one model on the whole batch.
  bool completes() {
    while (steps_made() < steps) step();
    ike::single alone;
    training<ike::single> reference(alone);
    while (reference.steps_made() < steps) reference.step();
    double worst = 0;
    for (std::size_t i = 0; i < model.parameters().size(); ++i)
      worst = std::max(worst, std::fabs(model.parameters()[i] - reference.model.parameters()[i]));
    return worst < 1e-13;
  }
};

int train(int seed, const std::filesystem::path& folder) {
  ike::mpi_group world = ike::mpi_group::world(timeout);
  const int trio = world.rank() / 3;
  ike::mpi_group group = world.split(trio, 0);
  const auto path = folder / (std::to_string(trio) + ".safetensors");
  const int last_step = 1 + (seed + trio) % 9, victim = (seed + 2 * trio) % 3;
  const bool is_victim = group.rank() == victim;
  const std::string dead = "rank " + std::to_string(3 * trio + victim);

  training<ike::mpi_group> replica(group);
  if (group.rank() == 0) ike::save(ike::get_training_state(replica.model, replica.optimizer), path);
  group.barrier();
  if (is_victim && (seed + trio) % 2 != 0) {
    // At any point of a step, also during the writing of a checkpoint.
    ::signal(SIGALRM, [](int) { ::kill(::getpid(), SIGKILL); });
    itimerval soon{};
    soon.it_value.tv_usec = 1 + (seed * 7919 + trio * 104729) % 9000;
    ::setitimer(ITIMER_REAL, &soon, nullptr);
  }
  auto since = std::chrono::steady_clock::now();
  std::string text;
  try {
    while (replica.steps_made() < steps) {
      if (is_victim && replica.steps_made() == last_step) ::kill(::getpid(), SIGKILL);
      since = std::chrono::steady_clock::now();
      replica.step();
      if (group.rank() == 0)
        ike::save(ike::get_training_state(replica.model, replica.optimizer), path);
    }
  } catch (const ike::communication_error& e) {
    text = e.what();
  }
  const auto waited = std::chrono::steady_clock::now() - since;
  if (!text.starts_with("rank " + std::to_string(world.rank()) + ": ") ||
      text.find(dead + " has died (waited ") == std::string::npos || waited > timeout) {
    say("expected that " + dead + " has died, got: " + text);
    return 1;
  }

  ike::mpi_group left = group.survivors(timeout);
  const bool sizes = left.size() == 2;
  replica.model.set_process_group(left, replica.optimizer);
  training<ike::mpi_group> resumed(left);
  ike::load_training_state(resumed.model, resumed.optimizer, ike::load(path));
  const std::int64_t from = resumed.steps_made(), had = replica.steps_made();
  const bool both = replica.completes() && resumed.completes();
  if (!sizes || !both || from > last_step || from + 1 < had) {
    say("trio " + std::to_string(trio) + ": " + std::to_string(left.size()) + " ranks, " +
        std::to_string(had) + " steps in their weights, " + std::to_string(from) +
        " in the checkpoint" + (both ? "" : "; other weights than expected at the end"));
    return 1;
  }
  left.barrier();
  say("went on");
  return 0;
}

/// Sums 1 over a group, in it and in parts of it.
bool works(ike::mpi_group& group) {
  std::vector<float> x(5000, 1.0f), y = x;
  ike::mpi_group part = group.split(group.rank() % 2, -group.rank());
  auto sum = group.all_reduce_async(std::span<float>(x), ike::reduce_op::sum);
  part.all_reduce(std::span<float>(y), ike::reduce_op::sum);
  sum.wait();
  return x == std::vector<float>(5000, static_cast<float>(group.size())) &&
         y == std::vector<float>(5000, static_cast<float>(part.size()));
}

int shrink() {
  return ike::launch(ike::mpi_ranks{timeout, std::chrono::seconds(5)}, [](ike::mpi_group& world) {
    ike::mpi_group group = std::move(world);
    while (group.size() > 2) {
      if (!works(group)) return 1;
      if (group.rank() == group.size() - 1) {
        if (group.size() % 2 == 0) ::kill(::getpid(), SIGKILL);
        throw std::runtime_error("out of apples");
      }
      try {
        for (;;) group.barrier();
      } catch (const ike::communication_error&) {
        ike::mpi_group left = group.survivors(timeout);
        if (left.size() != group.size() - 1 || left.rank() != group.rank()) return 1;
        group = std::move(left);
      }
    }
    if (!works(group)) return 1;
    say("went on");
    return 0;
  });
}

int fail(std::string_view how) {
  // Only a rank that is alive and idle is detected by the timeout.
  const auto longest = std::chrono::milliseconds(how == "hang" ? 1000 : 200000);
  // Done before the launch, because the start of MPI may take longer than the timeout.
  static_cast<void>(ike::mpi_group::world());
  ike::launch(ike::mpi_ranks{longest, std::chrono::seconds(2)},
              [&](ike::process_group auto& group) {
                std::vector<float> x(100000, 1.0f), y(1000, 1.0f);
                for (int step = 0; step < 100; ++step) {
                  const bool now = step == 5 && group.rank() == group.size() - 1;
                  if (now && how == "kill") ::kill(::getpid(), SIGKILL);
                  if (now && how == "throw") throw std::runtime_error("out of apples");
                  if (now && how == "exit") std::exit(0);
                  if (now && how == "return") return;
                  if (now && how == "hang")
                    for (;;) ::pause();
                  auto first = group.all_reduce_async(std::span<float>(x), ike::reduce_op::avg);
                  auto second = group.all_reduce_async(std::span<float>(y), ike::reduce_op::avg);
                  if (now && how == "kill_amid") ::kill(::getpid(), SIGKILL);
                  if (now && how == "throw_amid") throw std::runtime_error("out of apples");
                  first.wait();
                  second.wait();
                }
              });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  try {
    if (how == "train" && argc == 4) return train(std::atoi(argv[2]), argv[3]);
    return how == "shrink" ? shrink() : fail(how);
  } catch (const ike::communication_error& e) {
    say(std::string("caught ") + e.what());
  } catch (const std::exception& e) {
    say(std::string("threw ") + e.what());
  }
  return 3;
}
