#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "ikebana/replicate/launch.hpp"
#include "synchronisation_checks.hpp"
#include "test/replicate/on_threads.hpp"

namespace ike = ikebana;
namespace checks = synchronisation_checks;
using namespace ike::literals;
using ike::threads;

TEST_CASE("gradient_accumulation: all groups, the root alone or some modules wait for the last") {
  for (const auto which :
       {checks::flags::all, checks::flags::root_only, checks::flags::some_mlps}) {
    on_threads([&](ike::thread_group& group) {
      return checks::gradient_accumulation<double>(group, which);
    });
    on_threads([&](ike::thread_group& group) {
      return checks::gradient_accumulation<float>(group, which);
    });
  }
}

TEST_CASE("1f1b_microbatching: backward returns while gradients are reduced, but for the last") {
  for (const bool reduce_each : {false, true})
    on_threads([&](ike::thread_group& group) {
      return checks::microbatching<double>(group, reduce_each);
    });
}

TEST_CASE("a backward that is not the last returns before the other ranks have begun theirs") {
  std::atomic<bool> returned{false};
  ike::launch(threads{2}, [&](ike::thread_group& group) {
    auto model = ike::replicate<ike::replicate_policy<checks::by_block>>(
        ike::initialize<double, checks::rows>(checks::blocks, ike::seed{1}), group);
    auto plain = ike::initialize<double, checks::rows>(checks::blocks, ike::seed{1});
    model.set_is_last_backward(false);
    if (group.rank() == 1) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (!returned && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      CHECK(returned);
    }
    checks::accumulate<double>(model, group.rank(), 0);
    returned = true;
    checks::accumulate<double>(plain, group.rank(), 0);
    model.wait_for_gradients();
    CHECK(checks::are_sums<double>(group, std::as_const(model).gradients(),
                                   checks::copied(plain.gradients()), 2));
    // The last backward waits: gradients are final when it returns.
    model.set_is_last_backward(true);
    checks::accumulate<double>(model, group.rank(), 1);
    const auto gradients = checks::copied(model.gradients());
    group.barrier();
    CHECK(std::ranges::equal(model.gradients(), gradients));
  });
}

TEST_CASE("train_parity_multi_groups: by module, by bytes, one in another") {
  on_threads([](ike::thread_group& group) {
    using nested = ike::groups_by_module<"mlp2", "mlp2.up", "out">;
    return checks::train_parity<double, ike::replicate_policy<checks::by_block>>(group,
                                                                                 checks::blocks) +
           checks::train_parity<double, ike::replicate_policy<nested, ike::groups_by_bytes<900>>>(
               group, checks::blocks) +
           checks::train_parity<float, ike::replicate_policy<ike::groups_by_bytes<1>>>(
               group, checks::blocks);
  });
}

TEST_CASE(
    "multi_forward_module and shared parameters: reduced once, with the gradients of all calls") {
  on_threads([](ike::thread_group& group) {
    return checks::train_parity<double, ike::replicate_policy<ike::groups_by_module<"mlp">>>(
               group, checks::shared) +
           checks::train_parity<double, ike::replicate_policy<ike::bucket_cap<1>>>(group,
                                                                                   checks::shared);
  });
}

TEST_CASE("non_root_forward_backward: replicas of parts, one after the other, share a group") {
  for (const int failures : ike::launch(threads{2}, [](ike::thread_group& group) {
         auto first = ike::replicate(
             ike::initialize<double, checks::rows>(checks::block, ike::seed{1}), group);
         auto second = ike::replicate(
             ike::initialize<double, checks::rows>(ike::lazy_linear<5>{}, ike::seed{2}), group);
         auto whole = ike::initialize<double, checks::rows>(
             ike::sequential("body"_m = checks::block, "head"_m = ike::lazy_linear<5>{}),
             ike::seed{3});
         const std::size_t n = second.parameters().size();
         std::ranges::copy(second.parameters(), whole.parameters().begin());
         std::ranges::copy(first.parameters(),
                           whole.parameters().begin() + static_cast<std::ptrdiff_t>(n));
         const auto x = checks::inputs<double>(group.rank(), 0);
         const auto g = checks::targets<double>(group.rank(), 0);
         ike::tensor<double, checks::rows> dh(x.extents()), dx(x.extents()), whole_dx(x.extents());
         int failures = 0;
         second(first(x));
         second.backward(g, dh);
         first.backward(dh, dx);
         whole(x);
         whole.backward(g, whole_dx);
         std::vector<double> gradients(second.gradients().begin(), second.gradients().end());
         gradients.insert(gradients.end(), first.gradients().begin(), first.gradients().end());
         failures +=
             !checks::are_sums<double>(group, gradients, checks::copied(whole.gradients()), 2);
         for (ike::dim_t i = 0; i < dx.size(); ++i)
           failures += std::fabs(dx.data()[i] - whole_dx.data()[i]) > 1e-14;
         // Then one of them by itself.
         first.zero_grad();
         first(x);
         first.backward(dh);
         auto alone = ike::initialize<double, checks::rows>(checks::block, ike::seed{1});
         alone(x);
         alone.backward(dh);
         failures += !checks::are_sums<double>(group, std::as_const(first).gradients(),
                                               checks::copied(alone.gradients()), 2);
         return failures;
       }))
    CHECK(failures == 0);
}

namespace {

constexpr auto four =
    ike::sequential("fc1"_m = ike::lazy_linear<2000>{}, "fc2"_m = ike::lazy_linear<2000>{},
                    "fc3"_m = ike::lazy_linear<2000>{}, "fc4"_m = ike::lazy_linear<2000>{});
constexpr auto small =
    ike::sequential("fc1"_m = ike::lazy_linear<20>{}, "fc2"_m = ike::lazy_linear<20>{},
                    "fc3"_m = ike::lazy_linear<20>{}, "fc4"_m = ike::lazy_linear<20>{});

}  // namespace

TEST_CASE("bucketing_coalesced_op: 4 x linear(2000) make 3 buckets") {
  using model = decltype(ike::initialize<float, ike::shape{1, 2000}>(four, ike::seed{1}));
  constexpr auto plan = ike::bucket_plan_of<ike::replicate_policy<>, model>();
  static_assert(plan.size() == 3);
  CHECK(plan.parameters(0).size() == 1);
  CHECK(plan.parameters(0)[0].path.view() == "fc4.weight");
  // The same at a hundredth of the extents: 3 reductions per step, with existing gradients or
  // without.
  ike::launch(threads{2}, [](ike::thread_group& inner) {
    counting_group group(inner);
    using policy = ike::replicate_policy<ike::bucket_caps<105, 2621>>;
    auto m = ike::replicate<policy>(ike::initialize<float, ike::shape{1, 20}>(small, ike::seed{1}),
                                    group);
    static_cast<void>(group.take());
    for (int step = 0; step < 3; ++step) {
      const auto x = ike::uniform<float, ike::shape{1, 20}>(ike::seed{2});
      m(x);
      m.backward(ike::ones<float, ike::shape{1, 20}>());
      CHECK(group.take() == counting_group<ike::thread_group>::counts{3, 0});
      if (step == 1) m.zero_grad();
    }
  });
}

namespace {

constexpr auto large =
    ike::sequential("fc1"_m = ike::lazy_linear<2500>{}, ike::relu{},
                    "fc2"_m = ike::lazy_linear<2000>{}, "fc3"_m = ike::lazy_linear<500>{});

}  // namespace

TEST_CASE("10 million parameters are reduced in buckets of the default caps, of 1 and 25 MiB") {
  constexpr ike::shape in{1, 1600}, out{1, 500};
  const auto made = ike::initialize<float, in>(large, ike::seed{1});
  CHECK(made.parameters().size() > 10'000'000);
  ike::launch(threads{2}, [&](ike::thread_group& inner) {
    counting_group group(inner);
    auto model = ike::replicate(made.clone(), group);
    const auto& plan = model.bucket_plan();
    // fc3.weight; the other parameters from the end up to fc1.weight; fc1.bias.
    REQUIRE(plan.size() == 3);
    CHECK(plan[0].bytes() >= ike::MiB(1));
    CHECK(plan.parameters(0).size() == 1);
    CHECK(plan[1].bytes() >= ike::MiB(25));
    CHECK(plan.parameters(1).size() == 4);

    auto plain = made.clone();
    ike::sgd optimizer{model, {.lr = 0.1}}, plain_optimizer{plain, {.lr = 0.1}};
    const auto rank = static_cast<std::uint64_t>(group.rank());
    const auto x = ike::uniform<float, in>(ike::seed{rank});
    const auto y = ike::uniform<float, out>(ike::seed{10 + rank});
    static_cast<void>(group.take());
    model.train_step(x, y, ike::mse_loss{}, optimizer);
    CHECK(group.take() == counting_group<ike::thread_group>::counts{3, 0});
    plain.train_step(x, y, ike::mse_loss{}, plain_optimizer);
    CHECK_FALSE(std::ranges::equal(model.parameters(), plain.parameters()));
    // The same step without replicas, bit by bit.
    plain.zero_grad();
    std::ranges::copy(made.parameters(), plain.parameters().begin());
    plain.loss_backward(x, y, ike::mse_loss{});
    inner.all_reduce(plain.gradients(), ike::reduce_op::avg);
    plain_optimizer.step();
    CHECK(std::ranges::equal(model.gradients(), plain.gradients()));
    CHECK(std::ranges::equal(model.parameters(), plain.parameters()));
  });
}
