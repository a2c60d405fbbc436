// What replicating does not change, following PyTorch's test_replicate.py and test_contract.py;
// test/compile_fail has what is refused.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/requires_grad.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "test/replicate/counting_group.hpp"
#include "test/replicate/on_threads.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;
using ike::threads;

namespace {

constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<5>{}, "norm"_m = ike::lazy_batch_norm1d<>{},
                    "tail"_m = ike::sequential(ike::relu{}, ike::lazy_linear<2>{}));
constexpr shape in{6, 3};

using local = decltype(ike::initialize<float, in>(net, ike::seed{1}));
using by_module = ike::replicate_policy<ike::groups_by_module<"fc1", "tail">, ike::ignored<"norm">>;
template <class Policy>
using replica = ike::replicated<Policy, local, ike::thread_group>;

/// Whether two models have the same parameters and buffers: paths, shapes and order.
template <class A, class B>
constexpr bool same_paths() {
  const auto a = A::lowered();
  const auto b = B::lowered();
  const auto same = [&](const auto& of_a, const auto& of_b) {
    bool equal = of_a.size() == of_b.size();
    for (std::size_t i = 0; equal && i < of_a.size(); ++i)
      equal = a.path(of_a[i]) == b.path(of_b[i]) && of_a[i].spec.extents == of_b[i].spec.extents;
    return equal;
  };
  return same(a.all_parameters(), b.all_parameters()) && same(a.all_buffers(), b.all_buffers());
}

void check_same_state(const ike::state_dict& a, const ike::state_dict& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].name == b[i].name);
    CHECK(std::ranges::equal(a[i].bytes, b[i].bytes));
  }
}

}  // namespace

TEST_CASE("modify_fqn: paths do not change, whatever the policy") {
  CHECK(same_paths<local, replica<ike::replicate_policy<>>>());
  CHECK(same_paths<local, replica<by_module>>());
  using other = decltype(ike::initialize<float, shape{6, 4}>(net, ike::seed{1}));
  CHECK_FALSE(same_paths<other, replica<by_module>>());
}

TEST_CASE("state: a replica's type says its policy, model and group; it is moved, never copied") {
  using type = replica<by_module>;
  static_assert(std::is_same_v<type::policy_type, by_module>);
  static_assert(std::is_same_v<type::model_type, local>);
  static_assert(std::is_same_v<type::group_type, ike::thread_group>);
  static_assert(std::is_move_constructible_v<type>);
  static_assert(!std::is_copy_constructible_v<type>);
  static_assert(!std::is_copy_assignable_v<type>);
  static_assert(ike::detail::is_replicated<type> && !ike::detail::is_replicated<local>);
  ike::launch(threads{2}, [](ike::thread_group& group) {
    const auto made = ike::initialize<float, in>(net, ike::seed{1});
    auto stays = ike::replicate<by_module>(made.clone(), group);
    auto first = ike::replicate<by_module>(made.clone(), group);
    type moved = std::move(first);
    const auto x = ike::uniform<float, in>(ike::seed{static_cast<std::uint64_t>(group.rank())});
    for (auto* m : {&stays, &moved}) {
      (*m)(x);
      m->backward(ike::ones<float, shape{6, 2}>());
    }
    CHECK(&moved.group() == &group);
    CHECK(std::ranges::equal(moved.gradients(), stays.gradients()));
  });
}

TEST_CASE("replicate_single_module_save_load: states are those of the local model, both ways") {
  ike::launch(threads{2}, [](ike::thread_group& group) {
    auto reference = ike::initialize<float, in>(net, ike::seed{1});
    auto model = ike::replicate<by_module>(reference.clone(), group);
    check_same_state(ike::get_state_dict(model), ike::get_state_dict(reference));
    auto other = ike::initialize<float, in>(net, ike::seed{2});
    ike::load_state_dict(model, ike::get_state_dict(other));
    check_same_state(ike::get_state_dict(model), ike::get_state_dict(other));
    ike::load_state_dict(reference, ike::get_state_dict(model));
    check_same_state(ike::get_state_dict(reference), ike::get_state_dict(other));
  });
}

TEST_CASE("replicate_non_root_multiple_save_load: replicas of parts have the states of the parts") {
  ike::launch(threads{2}, [](ike::thread_group& group) {
    const auto first = ike::initialize<float, in>(ike::lazy_linear<4>{}, ike::seed{1});
    const auto second = ike::initialize<float, shape{6, 4}>(ike::lazy_linear<2>{}, ike::seed{2});
    auto a = ike::replicate(first.clone(), group);
    auto b = ike::replicate(second.clone(), group);
    check_same_state(ike::get_state_dict(a), ike::get_state_dict(first));
    check_same_state(ike::get_state_dict(b), ike::get_state_dict(second));
  });
}

TEST_CASE("add_hooks: hooks of the model and of its replica run in their order around forward") {
  ike::launch(threads{2}, [](ike::thread_group& group) {
    auto made = ike::initialize<float, in>(net, ike::seed{1});
    std::vector<int> log;
    made.register_forward_pre_hook(""_s, [&](const ike::module_call&) { log.push_back(1); });
    auto model = ike::replicate<by_module>(std::move(made), group);
    model.register_forward_hook("tail"_s, [&](const ike::module_call&) { log.push_back(2); });
    model(ike::ones<float, in>());
    CHECK(log == std::vector<int>{1, 2});
  });
}

TEST_CASE("multi_module_api: a list of modules is one group with one collective and one state") {
  constexpr auto five = ike::sequential("a"_m = ike::linear<3, 3>{}, "b"_m = ike::linear<3, 3>{},
                                        "c"_m = ike::linear<3, 3>{}, "d"_m = ike::linear<3, 3>{},
                                        "e"_m = ike::linear<3, 3>{});
  using model_type = decltype(ike::initialize<double, in>(five, ike::seed{1}));
  using as_one = ike::replicate_policy<ike::groups_by_module<ike::together<"a", "b">, "c">>;
  using as_two = ike::replicate_policy<ike::groups_by_module<"a", "b", "c">>;
  using groups = ike::detail::parameter_groups<as_one>;
  static_assert(groups::count == 3 && ike::detail::parameter_groups<as_two>::count == 4);
  static_assert(groups::group_of("a.weight") == 1 && groups::group_of("b.bias") == 1);
  static_assert(groups::group_of("c.weight") == 2 && groups::group_of("d.weight") == 0);
  constexpr auto plan = ike::bucket_plan_of<as_one, model_type>();
  static_assert(plan.size() == 3 && plan.parameters(2).size() == 4);
  static_assert(ike::bucket_plan_of<as_two, model_type>().size() == 4);
  // Buckets are reduced in place, so "b" between the two divides their group.
  constexpr auto cut =
      ike::bucket_plan_of<ike::replicate_policy<ike::groups_by_module<ike::together<"a", "c">>>,
                          model_type>();
  static_assert(cut.size() == 4 && cut[1].group == 1 && cut[2].group == 0 && cut[3].group == 1);

  ike::launch(threads{2}, [&](ike::thread_group& inner) {
    counting_group group{inner};
    auto model = ike::replicate<as_one>(ike::initialize<double, in>(five, ike::seed{1}), group);
    auto alone = ike::initialize<double, in>(five, ike::seed{1});
    const auto x = ike::uniform<double, in>(ike::seed{static_cast<std::uint64_t>(group.rank())});
    const auto gradient = ike::ones<double, in>();
    const auto reductions = [&] {
      model.zero_grad();
      model(x);
      group.take();
      model.backward(gradient);
      return group.take().all_reduces;
    };
    alone(x);
    alone.backward(gradient);
    const auto is_local = [&](auto path) {
      return model.gradient(path)[0] == alone.gradient(path)[0];
    };
    CHECK(reductions() == 3);
    CHECK_FALSE(is_local("a.weight"_s));
    // The path of either module applies to both.
    model.set_requires_gradient_sync("b"_s, false, false);
    CHECK(reductions() == 2);
    CHECK(is_local("a.weight"_s));
    CHECK(is_local("b.weight"_s));
    CHECK_FALSE(is_local("c.weight"_s));
    model.set_requires_gradient_sync("a"_s, true);
    CHECK(reductions() == 3);
    model.set_gradient_divide_factor("b"_s, 1);
    const double before = model.gradient("a.weight"_s)[0];
    CHECK(reductions() == 3);
    CHECK(model.gradient("a.weight"_s)[0] == doctest::Approx(2 * before));
    CHECK(&model.hook("a"_s) == &model.hook("b"_s));
  });
}

TEST_CASE("a module above groups is a path to all of them, but not one of them") {
  ike::launch(threads{2}, [](ike::thread_group& group) {
    auto model = ike::replicate<ike::replicate_policy<ike::groups_by_module<"tail.1">>>(
        ike::initialize<float, in>(net, ike::seed{1}), group);
    model.set_requires_gradient_sync(false, false);
    model.set_requires_gradient_sync("tail"_s, false);
    CHECK_FALSE(model.synchronises());
    model.set_requires_gradient_sync("tail.1"_s, true, false);
    CHECK(model.synchronises());
    CHECK_THROWS_WITH_AS(model.set_requires_gradient_sync("tail"_s, true, false),
                         "tail: is not a group of the policy", ike::error);
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double wrong : {0.0, -1.0, infinity, std::numeric_limits<double>::quiet_NaN()}) {
      CHECK_THROWS_WITH_AS(model.set_gradient_divide_factor(wrong),
                           "set_gradient_divide_factor expects a finite number above 0",
                           ike::error);
      CHECK_THROWS_AS(model.set_gradient_divide_factor("tail.1"_s, wrong), ike::error);
    }
  });
}

TEST_CASE("a policy that ignores all, and one that delays all, make no bucket") {
  ike::launch(threads{2}, [](ike::thread_group& group) {
    auto none = ike::replicate<ike::replicate_policy<ike::ignored<"">>>(
        ike::initialize<float, in>(net, ike::seed{static_cast<std::uint64_t>(group.rank())}),
        group);
    none(ike::ones<float, in>());
    none.backward(ike::ones<float, shape{6, 2}>());
    CHECK(none.bucket_plan().empty());
    auto delayed = ike::replicate<ike::replicate_policy<ike::delay_all_reduce<"">>>(
        ike::initialize<float, in>(net, ike::seed{1}), group);
    delayed(ike::ones<float, in>());
    delayed.backward(ike::ones<float, shape{6, 2}>());
    CHECK(delayed.bucket_plan().empty());
  });
}

TEST_CASE("replicate refuses an embedding with a max_norm, which changes rows of one rank alone") {
  on_threads(
      [](auto& group) {
        const auto words = [](auto m) {
          return ike::initialize<float, shape{2}>(ike::sequential("words"_m = m), ike::seed{1});
        };
        CHECK_THROWS_WITH_AS(ike::replicate(words(ike::embedding<3, 2>{.max_norm = 1.0}), group),
                             "replicate: max_norm of an embedding scales the rows that a rank "
                             "selects, so that ranks would differ",
                             ike::error);
        CHECK_NOTHROW(ike::replicate(words(ike::embedding<3, 2>{}), group));
      },
      1);
}

TEST_CASE("replicas train the parts that every rank has switched on") {
  on_threads(
      [](auto& group) {
        constexpr auto two =
            ike::sequential("a"_m = ike::linear<4, 3>{}, "b"_m = ike::linear<3, 2>{});
        constexpr shape rows{2, 4}, values{2, 2};
        auto model = ike::replicate(ike::initialize<float, rows>(two, ike::seed{1}), group);
        ike::sgd optimizer{model, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}};
        ike::requires_grad<"a">(model, false);
        const auto mine = static_cast<std::uint64_t>(group.rank());
        const auto x = ike::uniform<float, rows>(ike::seed{mine + 5});
        const auto t = ike::uniform<float, values>(ike::seed{mine + 9});
        const float a = model["a.weight"_s][0], b = model["b.weight"_s][0];
        for (int i = 0; i < 3; ++i) model.train_step(x, t, ike::mse_loss{}, optimizer);
        CHECK(model["a.weight"_s][0] == a);
        CHECK(model["b.weight"_s][0] != b);
        CHECK(model.gradient("a.weight"_s)[0] == 0);
        std::vector<float> of_first(model.parameters().begin(), model.parameters().end());
        group.broadcast(std::span<float>(of_first), 0);
        CHECK(std::equal(of_first.begin(), of_first.end(), model.parameters().begin()));
      },
      2);
}
