// What replicating does not change, after PyTorch's test_replicate.py and test_contract.py; what is
// refused is in test/compile_fail.

#include <doctest/doctest.h>

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/replicate.hpp"

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
  static_assert(same_paths<local, replica<ike::replicate_policy<>>>());
  static_assert(same_paths<local, replica<by_module>>());
  CHECK(ike::replicate_policy<>::caps.size() == 2);
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
  CHECK(true);
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

TEST_CASE("multi_module_api: one call with several modules makes a group of each") {
  using groups = ike::detail::parameter_groups<by_module>;
  static_assert(groups::count == 3);
  static_assert(groups::group_of("fc1.weight") == 1 && groups::group_of("tail.1.bias") == 2);
  static_assert(groups::group_of("norm.weight") == -1 && groups::group_of("other") == 0);
  constexpr auto plan = ike::bucket_plan_of<by_module, local>();
  static_assert(plan.size() == 2 && plan[0].group == 2 && plan[1].group == 1);
  // The parameters of norm stand between, in no bucket.
  static_assert(plan[0].end < plan[1].begin && plan.bucket_of(2) == 2);
  CHECK(plan.parameters(1)[0].path.view() == "fc1.weight");
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
    CHECK_THROWS_AS(model.set_gradient_divide_factor(-1), ike::error);
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
