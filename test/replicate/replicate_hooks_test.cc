// Communication hooks in replicated training.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/model_averager.hpp"
#include "ikebana/replicate/post_local_sgd.hpp"
#include "ikebana/replicate/powersgd.hpp"
#include "ikebana/replicate/quantization.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;
using ike::threads;

namespace {

constexpr auto mlp = ike::sequential("fc1"_m = ike::lazy_linear<24>{}, "tanh"_m = ike::tanh{},
                                     "fc2"_m = ike::lazy_linear<16>{}, "tanh2"_m = ike::tanh{},
                                     "fc3"_m = ike::lazy_linear<5>{});
constexpr shape rows{dynamic, 12};

template <class Hook>
using with_hook = ike::replicate_policy<ike::comm_hook<Hook>, ike::bucket_cap<1024>>;

ike::tensor<std::int64_t, shape{dynamic}> labels(ike::dim_t n) {
  ike::tensor<std::int64_t, shape{dynamic}> t(shape{n});
  for (ike::dim_t i = 0; i < n; ++i) t[i] = i % 5;
  return t;
}

auto fresh() { return ike::initialize<float, rows>(mlp, ike::seed{1}); }

/// Some steps on different data per rank. `after(step, model)` observes. Returns the last loss.
template <class Model, class After>
double train(Model& model, int rank, int steps, After after) {
  ike::sgd optimizer{model, {.lr = 0.1}};
  const auto x = ike::uniform<float, rows>(ike::seed{static_cast<std::uint64_t>(rank)}, 10);
  const auto t = labels(10);
  double loss = 0;
  for (int s = 0; s < steps; ++s) {
    loss = static_cast<double>(model.train_step(x, t, ike::cross_entropy{}, optimizer));
    after(s, model);
  }
  return loss;
}

/// The parameters after 20 steps with a hook, by rank.
template <class Make>
std::vector<std::vector<float>> trained_with(int ranks, Make make) {
  return ike::launch(threads{ranks}, [&](ike::process_group auto& group) {
    auto model = ike::replicate<with_hook<decltype(make())>>(fresh(), group, make());
    train(model, group.rank(), 20, [](int, auto&) {});
    return std::vector<float>(model.parameters().begin(), model.parameters().end());
  });
}

template <class Hook>
auto trained(int ranks) {
  return trained_with(ranks, [] { return Hook(); });
}

double apart(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

}  // namespace

TEST_CASE("The compiler plans the buckets, in the order in which backward finishes") {
  using model_type = decltype(fresh());
  constexpr auto plan =
      ike::bucket_plan_of<ike::replicate_policy<ike::bucket_caps<1, 1024>>, model_type>();
  static_assert(plan.size() == 4);
  static_assert(plan.parameters(0)[0].path.view() == "fc3.weight");
  static_assert(plan.parameters(3)[0].path.view() == "fc1.bias");
  static_assert(plan[0].begin == 0 && plan[0].end == 4 * 5 * 16);
  std::ostringstream out;
  out << plan;
  CHECK(out.str() ==
        "bucket 0: bytes [0, 320), 320 bytes: fc3.weight\n"
        "bucket 1: bytes [320, 1920), 1600 bytes: fc3.bias fc2.weight\n"
        "bucket 2: bytes [1920, 3136), 1216 bytes: fc2.bias fc1.weight\n"
        "bucket 3: bytes [3136, 3264), 128 bytes: fc1.bias\n");

  ike::launch(threads{2}, [&](ike::process_group auto& group) {
    auto model = ike::replicate<ike::replicate_policy<ike::bucket_caps<1, 1024>>>(fresh(), group);
    std::ostringstream same;
    same << model.bucket_plan();
    CHECK(same.str() == out.str());
  });
}

TEST_CASE("Hooks that lose little train as the average does, on any number of ranks") {
  for (int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    const auto exact = trained<ike::all_reduce_hook>(ranks);
    const auto near = [&](const auto& got, double tolerance) {
      for (const auto& p : got) CHECK(p == got[0]);
      CHECK(apart(got[0], exact[0]) < tolerance);
      CHECK(apart(got[0], exact[0]) > 0);
    };
    near(trained<ike::fp16_compress>(ranks), 1e-3);
    near(trained<ike::bf16_compress>(ranks), 1e-2);
    near(trained<ike::quantize_8bit>(ranks), 1e-2);
    near(trained<ike::quantize_8bit_per_channel<64>>(ranks), 1e-2);
    const auto low_rank = [] { return ike::powersgd{{.rank = 3, .min_compression_rate = 1}}; };
    near(trained_with(ranks, low_rank), 0.1);
    const auto late = [] { return ike::powersgd{{.start_iteration = 20}}; };
    CHECK(trained_with(ranks, late) == exact);
    CHECK(trained_with(ranks, low_rank) == trained_with(ranks, low_rank));
  }
}

TEST_CASE("PowerSGD keeps going down") {
  ike::launch(threads{2}, [](ike::process_group auto& group) {
    auto model = ike::replicate<with_hook<ike::powersgd>>(fresh(), group);
    double first = 0;
    const double last = train(model, group.rank(), 300, [&](int s, auto& m) {
      if (s == 0) first = 2;
      CHECK(m.hook().iteration() == s + 1);
    });
    CHECK(last < first / 2);
    CHECK(model.hook().compression().rate() > 1.5);
  });
}

namespace {

/// A custom hook with three collectives, which records the order of its calls.
struct three_stages {
  static constexpr ike::hook_result result = ike::hook_result::average;
  static constexpr std::size_t stages = 3;
  std::string calls;
  std::size_t buckets = 0;
  std::vector<std::vector<float>> sums;

  template <class T, class G>
  void prepare(std::span<const ike::gradient_bucket<T>> all, G&) {
    buckets = all.size();
    sums.assign(buckets, {1, 1});
  }
  template <class T, class G>
  auto start(ike::gradient_bucket<T> bucket, G& group) {
    calls += "s" + std::to_string(bucket.index);
    return group.all_reduce_async(bucket.data, ike::reduce_op::avg);
  }
  template <class T, class G>
  auto proceed(ike::gradient_bucket<T> bucket, G& group, std::size_t stage) {
    calls += (stage == 1 ? "p" : "q") + std::to_string(bucket.index);
    return group.all_reduce_async(std::span{sums[bucket.index]}.subspan(stage - 1, 1),
                                  ike::reduce_op::sum);
  }
  template <class T, class G>
  void finish(ike::gradient_bucket<T> bucket, G& group) {
    for (float s : sums[bucket.index]) CHECK(s == static_cast<float>(group.size()));
    if (bucket.is_last()) sums.assign(buckets, {1, 1});
  }
};

/// Its buckets are numbered among those that this hook has.
struct numbered : ike::all_reduce_hook {
  std::size_t buckets = 0;

  template <class T, class G>
  void prepare(std::span<const ike::gradient_bucket<T>> own, G&) {
    buckets = own.size();
    for (std::size_t b = 0; b < own.size(); ++b) {
      CHECK(own[b].index == b);
      CHECK(own[b].count == own.size());
    }
  }
};

/// Freezes a parameter by its path.
struct frozen_bias : ike::all_reduce_hook {
  template <class T, class G>
  void finish(ike::gradient_bucket<T> bucket, G&) {
    for (T& g : bucket.gradient("fc2.bias")) g = 0;
  }
};

}  // namespace

TEST_CASE("Stages follow each other in the same order on every rank") {
  const auto exact = trained<ike::all_reduce_hook>(3);
  for (int ranks : {1, 2, 3, 4}) {
    const auto calls = ike::launch(threads{ranks}, [&](ike::process_group auto& group) {
      auto model = ike::replicate<with_hook<three_stages>>(fresh(), group);
      CHECK(model.hook().buckets == 3);
      train(model, group.rank(), 20, [](int s, auto& m) {
        if (s == 0) CHECK(m.hook().calls == "s0p0s1q0p1s2q1p2q2");
      });
      if (ranks == 3)
        CHECK(std::equal(exact[0].begin(), exact[0].end(), model.parameters().begin()));
      return model.hook().calls;
    });
    for (const std::string& c : calls) CHECK(c == calls[0]);
  }
}

TEST_CASE("A hook's buckets are numbered without those of other hooks") {
  ike::launch(threads{1}, [](ike::process_group auto& group) {
    auto model =
        ike::replicate<ike::replicate_policy<ike::comm_hook<numbered>, ike::bucket_cap<1024>,
                                             ike::override_at<"fc3", ike::comm_hook<frozen_bias>>>>(
            fresh(), group);
    CHECK(model.hook().buckets == 3);
  });
}

TEST_CASE("A hook finds a parameter by its path") {
  ike::launch(threads{2}, [](ike::process_group auto& group) {
    auto model = ike::replicate<with_hook<frozen_bias>>(fresh(), group);
    const auto reference = fresh();
    train(model, group.rank(), 3, [](int, auto&) {});
    CHECK(std::equal(reference["fc2.bias"_s].data(), reference["fc2.bias"_s].data() + 16,
                     model["fc2.bias"_s].data()));
    CHECK(reference["fc1.bias"_s][0] != model["fc1.bias"_s][0]);
  });
}

TEST_CASE("Steps with hooks allocate nothing") {
  const auto check = [](auto make) {
    ike::launch(threads{2}, [&](ike::process_group auto& group) {
      auto model = ike::replicate<with_hook<decltype(make())>>(fresh(), group, make());
      long before = 0, after = 0;
      train(model, group.rank(), 6, [&](int s, auto&) {
        after = allocation_count_here;
        if (s == 1) before = after;
      });
      CHECK(after == before);
    });
  };
  check([] { return ike::fp16_compress{}; });
  check([] { return ike::quantize_8bit{}; });
  check([] { return ike::powersgd{{.rank = 2}}; });
  check([] { return ike::post_local_sgd{2}; });
}

TEST_CASE("Post-local SGD: ranks drift apart, and come together where they are averaged") {
  const auto all = ike::launch(threads{3}, [](ike::process_group auto& group) {
    auto model =
        ike::replicate<with_hook<ike::post_local_sgd<>>>(fresh(), group, ike::post_local_sgd{4});
    ike::model_averager averager{group, {.period = 3, .warmup_steps = 4}};
    std::vector<std::vector<float>> parameters;
    train(model, group.rank(), 12, [&](int, auto& m) {
      averager.average(m);
      parameters.emplace_back(m.parameters().begin(), m.parameters().end());
    });
    return parameters;
  });
  // Averaged in the steps 4, 7, 10.
  for (std::size_t s = 0; s < 12; ++s) {
    CAPTURE(s);
    const bool same = s < 4 || s == 4 || s == 7 || s == 10;
    CHECK((all[0][s] == all[1][s]) == same);
    CHECK((all[0][s] == all[2][s]) == same);
  }
}
