#include "ikebana/train/checkpointer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "ikebana/ikebana.hpp"
#include "ikebana/optim/averaged_model.hpp"
#include "ikebana/replicate.hpp"
#include "test/support/scratch.hpp"

namespace ike = ikebana;
using namespace ike::literals;

namespace {

constexpr auto net =
    ike::sequential("fc"_m = ike::lazy_linear<6>{}, "drop"_m = ike::dropout{},
                    "norm"_m = ike::lazy_batch_norm1d<>{}, "head"_m = ike::lazy_linear<2>{});
constexpr ike::shape rows{ike::dynamic, 3};

const auto data = ike::tensor_dataset(ike::uniform<float, ike::shape{22, 3}>(ike::seed{2}),
                                      ike::uniform<float, ike::shape{22, 2}>(ike::seed{3}));

/// All that a run consists of.
struct run_parts {
  decltype(ike::initialize<float, rows>(net, ike::seed{1}, ike::shape{4, 3})) model;
  ike::adamw<float> optimizer;
  ike::lr_scheduler<ike::exponential_lr, ike::adamw<float>> schedule;
  ike::data_loader<std::remove_const_t<decltype(data)>> loader;
  ike::averaged_model<decltype(model)> average;
  ike::grad_scaler scaler;

  explicit run_parts(std::uint64_t seed, double lr = 0.1, ike::dim_t batch = 4)
      : model{ike::initialize<float, rows>(net, ike::seed{seed}, ike::shape{4, 3})},
        optimizer{model, {.lr = lr}, ike::group<"head">{.lr = 2 * lr}},
        schedule{optimizer, ike::exponential_lr{.gamma = 0.9}},
        loader{data, {.batch = batch, .shuffle = ike::seed{5}}},
        average{model, {.decay = 0.5}} {}
  run_parts(const run_parts&) = delete;

  auto checkpointer(const std::filesystem::path& path,
                    const ike::checkpointer_options& options = {}) {
    return ike::checkpointer{path, options, model, optimizer, loader, schedule, scaler, average};
  }

  /// Trains until `end` steps; calls after(step).
  template <class F>
  void train(int& step, int end, F&& after) {
    while (step < end)
      for (auto [x, t] : loader) {
        model.train_step(x, t, ike::mse_loss{}, optimizer);
        average.update_parameters(model);
        schedule.step();
        ++step;
        after(step);
        if (step == end) break;
      }
  }
};

bool same(const run_parts& a, const run_parts& b) {
  return std::ranges::equal(a.model.parameters(), b.model.parameters()) &&
         std::ranges::equal(a.model.buffers(), b.model.buffers()) &&
         std::ranges::equal(a.average.module().parameters(), b.average.module().parameters()) &&
         a.average.n_averaged() == b.average.n_averaged() &&
         a.schedule.get_last_lr() == b.schedule.get_last_lr() &&
         a.scaler.state().scale == b.scaler.state().scale &&
         a.loader.position() == b.loader.position();
}

template <class F>
std::string state_error(F&& f) {
  try {
    f();
  } catch (const ike::state_error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("a run resumes with the same bits, within an epoch and at its end") {
  // An epoch has 6 batches, the last one of 2 samples.
  for (const int stop : {1, 4, 6, 9, 12}) {
    CAPTURE(stop);
    scratch_directory scratch;
    run_parts whole{1};
    whole.scaler.update(1024.0);
    int step = 0;
    auto run = whole.checkpointer(scratch.path() / "run");
    whole.train(step, 15, [&](int n) {
      if (n == stop) run.save();
    });

    run_parts other{7};
    auto again = other.checkpointer(scratch.path() / "run");
    CHECK(again.resume());
    CHECK(again.saved() == 1);
    int steps = static_cast<int>(other.average.n_averaged());
    CHECK(steps == stop);
    other.train(steps, 15, [](int) {});
    CHECK(same(whole, other));
  }
}

TEST_CASE("the newest checkpoints and the best one stay") {
  scratch_directory scratch;
  const auto path = scratch.path() / "a" / "run";
  run_parts parts{1};
  auto run = parts.checkpointer(path, {.keep = 2});
  CHECK(!run.resume());
  CHECK(!run.load_best());
  int step = 0;
  const double metrics[] = {3, 1, std::numeric_limits<double>::quiet_NaN(), 2, 1};
  for (const double metric : metrics) {
    parts.train(step, step + 1, [](int) {});
    run.save(metric);
  }
  std::vector<std::string> files;
  for (const auto& f : std::filesystem::directory_iterator(path))
    files.push_back(f.path().filename().string());
  std::ranges::sort(files);
  CHECK(files == std::vector<std::string>{"best.safetensors", "checkpoint-00000004.safetensors",
                                          "checkpoint-00000005.safetensors"});
  CHECK(run.best() == 1);

  run_parts other{2};
  auto again = other.checkpointer(path, {.keep = 2, .mode = ike::metric_mode::max});
  CHECK(again.resume());
  CHECK(again.best() == 1);
  again.save(5);
  CHECK(again.saved() == 6);
  CHECK(again.best() == 5);
}

TEST_CASE("load_best loads the model of the best metric") {
  scratch_directory scratch;
  run_parts parts{1};
  auto run = parts.checkpointer(scratch.path());
  int step = 0;
  parts.train(step, 2, [](int) {});
  run.save(0.5);
  const std::vector<float> best(parts.model.parameters().begin(), parts.model.parameters().end());
  parts.train(step, 4, [](int) {});
  run.save(0.75);
  CHECK(!std::ranges::equal(parts.model.parameters(), best));
  CHECK(run.load_best());
  CHECK(std::ranges::equal(parts.model.parameters(), best));
}

TEST_CASE("a checkpoint of another run is refused before anything has changed") {
  scratch_directory scratch;
  run_parts parts{1};
  auto run = parts.checkpointer(scratch.path());
  int step = 0;
  parts.train(step, 3, [](int) {});
  run.save();

  run_parts other{2}, untouched{2};
  ike::checkpointer less{scratch.path(), other.model, other.optimizer, other.schedule,
                         other.loader};
  CHECK(state_error([&] { less.resume(); }).find("unexpected keys: run.scale") !=
        std::string::npos);
  run_parts faster{2, 0.2};
  auto with_other_rate = faster.checkpointer(scratch.path());
  CHECK(state_error([&] {
          with_other_rate.resume();
        }).find("lr_scheduler.initial_lr expects 0.2, got 0.1") != std::string::npos);
  CHECK(same(faster, run_parts{2, 0.2}));
  run_parts larger{2, 0.1, 5};
  auto with_other_batch = larger.checkpointer(scratch.path());
  CHECK(state_error([&] { with_other_batch.resume(); }) ==
        "run.loader: the loader has no batch that begins at sample 12 of epoch 0: its batches have "
        "5 samples on all ranks");
  CHECK(same(other, untouched));
  CHECK(with_other_rate.resume(ike::saved_options::restore));
  CHECK(faster.schedule.initial_lr() == 0.1);

  ike::save(ike::get_state_dict(parts.model), scratch.path() / "checkpoint-00000009.safetensors");
  CHECK(state_error([&] { run.resume(); }) ==
        "checkpointer: expected a checkpoint of version 1, got what is none");
  CHECK_THROWS_WITH_AS(other.checkpointer(scratch.path(), {.keep = 0}),
                       "checkpointer: Invalid keep: 0", ike::error);
  scratch.write("file", "");
  CHECK_THROWS_AS(other.checkpointer(scratch.path() / "file" / "run"), ike::io_error);
}

TEST_CASE("replicas resume with another number of ranks") {
  scratch_directory scratch;
  constexpr auto plain = ike::sequential("fc"_m = ike::lazy_linear<2>{});
  const auto train = [&](int ranks, ike::dim_t batch, int from, int to) {
    std::vector<float> end;
    ike::launch(ike::threads{ranks}, [&](ike::process_group auto& group) {
      auto model = ike::replicate<ike::replicate_policy<ike::shard_optimizer<true>>>(
          ike::initialize<float, rows>(plain, ike::seed{1}, ike::shape{4, 3}), group);
      ike::adam optimizer{model, {.lr = 0.1}};
      ike::data_loader loader{
          data, {.batch = batch, .shuffle = ike::seed{5}, .shard = group, .drop_last = true}};
      ike::checkpointer run{scratch.path(), model, optimizer, loader};
      if (from > 0) CHECK(run.resume());
      int step = from;
      while (step < to)
        for (auto [x, t] : loader) {
          model.train_step(x, t, ike::mse_loss{}, optimizer);
          if (++step == to) break;
        }
      run.save();
      if (group.rank() == 0) end.assign(model.parameters().begin(), model.parameters().end());
    });
    return end;
  };
  train(2, 2, 0, 3);
  const auto resumed = train(1, 4, 3, 7);
  std::filesystem::remove_all(scratch.path());
  const auto whole = train(1, 4, 0, 7);
  REQUIRE(resumed.size() == whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) CHECK(std::abs(resumed[i] - whole[i]) <= 1e-5f);
}

TEST_CASE("the errors of powersgd are part of a checkpoint") {
  scratch_directory scratch;
  constexpr auto plain = ike::sequential("fc1"_m = ike::lazy_linear<24>{}, ike::relu{},
                                         "fc2"_m = ike::lazy_linear<2>{});
  const auto train = [&](int ranks, int from, int to, bool saves) {
    std::vector<float> end;
    ike::launch(ike::threads{ranks}, [&](ike::process_group auto& group) {
      auto model = ike::replicate<ike::replicate_policy<ike::comm_hook<ike::powersgd>>>(
          ike::initialize<float, rows>(plain, ike::seed{1}, ike::shape{4, 3}), group);
      ike::adam optimizer{model, {.lr = 0.1}};
      ike::data_loader loader{
          data, {.batch = 4 / ranks, .shuffle = ike::seed{5}, .shard = group, .drop_last = true}};
      ike::checkpointer run{scratch.path(), model, optimizer, loader};
      if (from > 0) CHECK(run.resume());
      int step = from;
      while (step < to)
        for (auto [x, t] : loader) {
          model.train_step(x, t, ike::mse_loss{}, optimizer);
          if (++step == to) break;
        }
      if (saves) run.save();
      if (group.rank() == 0) end.assign(model.parameters().begin(), model.parameters().end());
    });
    return end;
  };
  const auto whole = train(2, 0, 7, false);
  train(2, 0, 3, true);
  CHECK(train(2, 3, 7, false) == whole);
  const auto alone = train(1, 3, 7, false);
  REQUIRE(alone.size() == whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) CHECK(std::abs(alone[i] - whole[i]) <= 1e-4f);
}
