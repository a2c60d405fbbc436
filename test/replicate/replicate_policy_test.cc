// Effects of policies and of a failing rank on replicated training.

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/replicate.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;
using ike::threads;

namespace {

constexpr auto mlp = ike::sequential("fc1"_m = ike::lazy_linear<6>{}, "tanh"_m = ike::tanh{},
                                     "fc2"_m = ike::lazy_linear<5>{});
constexpr shape rows{dynamic, 4};

ike::tensor<std::int64_t, shape{dynamic}> labels(ike::dim_t n) {
  ike::tensor<std::int64_t, shape{dynamic}> t(shape{n});
  for (ike::dim_t i = 0; i < n; ++i) t[i] = i % 5;
  return t;
}

/// The gradients of one step on different data per rank, by rank.
template <class Policy>
std::vector<std::vector<float>> gradients_of_a_step() {
  return ike::launch(threads{2}, [](ike::process_group auto& group) {
    auto model = ike::replicate<Policy>(ike::initialize<float, rows>(mlp, ike::seed{1}), group);
    const auto rank = static_cast<std::uint64_t>(group.rank());
    model.loss_backward(ike::uniform<float, rows>(ike::seed{rank}, 6), labels(6),
                        ike::cross_entropy{});
    return std::vector<float>(model.gradients().begin(), model.gradients().end());
  });
}

}  // namespace

TEST_CASE("tiny caps make a bucket of every parameter, large ones a single bucket") {
  ike::launch(threads{2}, [](ike::process_group auto& group) {
    const auto reference = ike::initialize<float, rows>(mlp, ike::seed{1});
    auto tiny = ike::replicate<ike::replicate_policy<ike::bucket_cap<1>>>(reference.clone(), group);
    REQUIRE(tiny.bucket_plan().size() == 4);
    CHECK(tiny.bucket_plan()[0].begin == 0);
    CHECK(tiny.bucket_plan()[3].end == static_cast<ike::dim_t>(4 * tiny.gradients().size()));
    for (std::size_t b = 1; b < 4; ++b)
      CHECK(tiny.bucket_plan()[b].begin == tiny.bucket_plan()[b - 1].end);
    auto large = ike::replicate(reference.clone(), group);
    CHECK(large.bucket_plan().size() == 1);
  });
}

TEST_CASE("bf16_compress rounds each gradient, and the average") {
  const auto exact = gradients_of_a_step<ike::replicate_policy<>>();
  const auto rounded =
      gradients_of_a_step<ike::replicate_policy<ike::comm_hook<ike::bf16_compress>>>();
  CHECK(rounded[0] == rounded[1]);
  CHECK(rounded[0] != exact[0]);
  float largest = 0;
  for (float g : exact[0]) largest = std::fmax(largest, std::fabs(g));
  for (std::size_t i = 0; i < exact[0].size(); ++i) {
    CHECK(std::fabs(rounded[0][i] - exact[0][i]) <= largest / 128);
    std::uint32_t bits;
    std::memcpy(&bits, &rounded[0][i], sizeof bits);
    CHECK((bits & 0xFFFFu) == 0);
  }
}

TEST_CASE("noop_hook leaves every rank its own gradients") {
  const auto own = gradients_of_a_step<ike::replicate_policy<ike::comm_hook<ike::noop_hook>>>();
  CHECK(own[0] != own[1]);
  auto alone = ike::initialize<float, rows>(mlp, ike::seed{1});
  alone.loss_backward(ike::uniform<float, rows>(ike::seed{1}, 6), labels(6), ike::cross_entropy{});
  CHECK(own[1] == std::vector<float>(alone.gradients().begin(), alone.gradients().end()));
}

namespace {

/// A custom hook: the sum, divided by the caller; counts what it sees.
struct counting_sum {
  static constexpr ike::hook_result result = ike::hook_result::sum;
  static inline std::atomic<int> started{0}, finished{0}, last{0};

  template <class T, ike::process_group G>
  auto start(ike::gradient_bucket<T> bucket, G& group) {
    ++started;
    last += bucket.is_last();
    return group.all_reduce_async(bucket.data, ike::reduce_op::sum);
  }
  template <class T, ike::process_group G>
  void finish(ike::gradient_bucket<T>, G&) {
    ++finished;
  }
};

}  // namespace

TEST_CASE("a hook that sums is divided by the number of ranks") {
  const auto exact = gradients_of_a_step<ike::replicate_policy<>>();
  using policy = ike::replicate_policy<ike::comm_hook<counting_sum>, ike::bucket_cap<1>>;
  const auto summed = gradients_of_a_step<policy>();
  CHECK(summed == exact);
  CHECK(counting_sum::started == 8);
  CHECK(counting_sum::finished == 8);
  CHECK(counting_sum::last == 2);
}

namespace {

template <class F>
void check_every_rank_names(const std::string& path, int ranks, F&& make) {
  // Every rank is notified: none keeps waiting, and none sees a follow-up error.
  for (int run = 0; run < 20; ++run) {
    const auto said =
        ike::launch(threads{ranks}, [&](ike::process_group auto& group) -> std::string {
          try {
            make(group);
          } catch (const ike::state_error& e) {
            return e.what();
          }
          return "nothing was thrown";
        });
    for (const std::string& s : said)
      CHECK_MESSAGE(s.find("the first difference is at " + path) != std::string::npos, s);
  }
}

}  // namespace

TEST_CASE("ranks with different models all throw, and name the first path that differs") {
  constexpr auto wide = ike::sequential("fc1"_m = ike::lazy_linear<6>{}, "tanh"_m = ike::tanh{},
                                        "fc2"_m = ike::lazy_linear<7>{});
  constexpr auto renamed = ike::sequential("fc1"_m = ike::lazy_linear<6>{}, "tanh"_m = ike::tanh{},
                                           "out"_m = ike::lazy_linear<5>{});
  check_every_rank_names("fc2.weight", 3, [&](auto& group) {
    if (group.rank() == 2)
      (void)ike::replicate(ike::initialize<float, rows>(wide, ike::seed{1}), group);
    else
      (void)ike::replicate(ike::initialize<float, rows>(mlp, ike::seed{1}), group);
  });
  check_every_rank_names("fc1.weight", 2, [&](auto& group) {
    if (group.rank() == 1)
      (void)ike::replicate(ike::initialize<double, rows>(mlp, ike::seed{1}), group);
    else
      (void)ike::replicate(ike::initialize<float, rows>(mlp, ike::seed{1}), group);
  });
  CHECK_THROWS_AS(ike::launch(threads{2},
                              [&](ike::process_group auto& group) {
                                if (group.rank() == 0)
                                  (void)ike::replicate(
                                      ike::initialize<float, rows>(renamed, ike::seed{1}), group);
                                else
                                  (void)ike::replicate(
                                      ike::initialize<float, rows>(mlp, ike::seed{1}), group);
                              }),
                  ike::state_error);
}

TEST_CASE("ranks with different numbers of parameters all throw") {
  constexpr auto shorter = ike::sequential("fc1"_m = ike::lazy_linear<6>{});
  const auto said = ike::launch(threads{2}, [&](ike::process_group auto& group) -> std::string {
    try {
      if (group.rank() == 0)
        (void)ike::replicate(ike::initialize<float, rows>(shorter, ike::seed{1}), group);
      else
        (void)ike::replicate(ike::initialize<float, rows>(mlp, ike::seed{1}), group);
    } catch (const ike::state_error& e) {
      return e.what();
    }
    return "nothing was thrown";
  });
  for (const std::string& s : said)
    CHECK(s ==
          "replicate: ranks have different numbers of parameters and buffers: rank 0 has 2, rank 1 "
          "has 4; the first difference is at fc2.weight, which is not on every rank");
}

TEST_CASE("ranks with equal parameters and different buffers all throw") {
  using images = ike::batch_norm2d<3>;
  using untracked = ike::batch_norm2d<3, ike::track_running_stats<false>>;
  const auto said = ike::launch(threads{2}, [&](ike::process_group auto& group) -> std::string {
    try {
      if (group.rank() == 0)
        (void)ike::replicate(ike::initialize<float, ike::shape{2, 3, 4, 4}>(images{}, ike::seed{1}),
                             group);
      else
        (void)ike::replicate(
            ike::initialize<float, ike::shape{2, 3, 4, 4}>(untracked{}, ike::seed{1}), group);
    } catch (const ike::state_error& e) {
      return e.what();
    }
    return "nothing was thrown";
  });
  for (const std::string& s : said)
    CHECK(s ==
          "replicate: ranks have different numbers of parameters and buffers: rank 0 has 5, rank 1 "
          "has 2; the first difference is at running_mean, which is not on every rank");
}

TEST_CASE("a rank that throws in the middle of a step ends all") {
  for (int culprit : {0, 1, 2}) {
    const auto begin = std::chrono::steady_clock::now();
    CHECK_THROWS_WITH_AS(
        ike::launch(threads{3},
                    [&](ike::process_group auto& group) {
                      auto model = ike::replicate<ike::replicate_policy<ike::bucket_cap<1>>>(
                          ike::initialize<float, rows>(mlp, ike::seed{1}), group);
                      ike::sgd optimizer{model, {.lr = 0.1}};
                      const auto x = ike::uniform<float, rows>(ike::seed{1}, 6);
                      for (int step = 0; step < 5; ++step) {
                        auto t = labels(6);
                        if (step == 3 && group.rank() == culprit) t[4] = 9;
                        model.train_step(x, t, ike::cross_entropy{}, optimizer);
                      }
                    }),
        ("rank " + std::to_string(culprit) +
         ": cross_entropy expects labels from 0 to 4, got 9 at index 4")
            .c_str(),
        ike::error);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
  }
}
