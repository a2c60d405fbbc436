#include "ikebana/replicate/parameter_groups.hpp"

#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <string_view>
#include <type_traits>

#include "ikebana/replicate/policy.hpp"

namespace ike = ikebana;
using ike::dim_t;
using ike::replicate_policy;
using ike::detail::parameter_groups;

namespace {

constexpr bool ends_with_bias(std::string_view path) { return path.ends_with("bias"); }

}  // namespace

TEST_CASE("Without options all parameters are one group, that of the network") {
  using groups = parameter_groups<replicate_policy<>>;
  static_assert(groups::count == 1 && !groups::ignores_any && !groups::delays_any);
  static_assert(groups::group_of("fc.weight") == 0 && groups::at("") == 0 &&
                groups::at("fc") == -1);
  static_assert(groups::caps[0].size() == 2 && groups::caps[0][0] == 1 << 20);
  static_assert(groups::divide_factors[0] == 0 && groups::synchronises[0]);
  static_assert(groups::hooks[0] == 0);
  CHECK(groups::caps[0][1] == 25 << 20);
}

TEST_CASE("The deepest module has a parameter; a group is one bucket unless the policy has caps") {
  using groups = parameter_groups<
      replicate_policy<ike::groups_by_module<"a", "b", "a.x">, ike::ignored<"b.y">>>;
  static_assert(groups::count == 4);
  static_assert(groups::group_of("a.weight") == 1 && groups::group_of("a.x.weight") == 3);
  static_assert(groups::group_of("a.xy.weight") == 1 && groups::group_of("ab.weight") == 0);
  static_assert(groups::group_of("b.y.weight") == -1 && groups::group_of("b.yy") == 2);
  static_assert(groups::caps[2].size() == 1);
  static_assert(groups::any_at_or_below("a.x") && !groups::any_at_or_below("a.x.weight"));
  CHECK(groups::caps[2][0] == std::numeric_limits<dim_t>::max());
  using capped = parameter_groups<
      replicate_policy<ike::groups_by_module<"a">, ike::groups_by_bytes<ike::KiB(4)>>>;
  static_assert(capped::caps[0][0] == 4096 && capped::caps[1][0] == 4096);
}

TEST_CASE("Modules together are one group, whose options are those of its first path") {
  using groups = parameter_groups<replicate_policy<
      ike::groups_by_module<ike::together<"a.x", "b", "c.y">, "d">,
      ike::override_at<"a", ike::bucket_cap<7>>, ike::override_at<"c", ike::bucket_cap<9>>,
      ike::override_at<"b.z", ike::bucket_cap<5>>>>;
  static_assert(groups::count == 6 && groups::roots.count == 8);
  static_assert(groups::at("a.x") == 1 && groups::at("b") == 1 && groups::at("c.y") == 1);
  static_assert(groups::at("d") == 2 && groups::at("b.z") == 5);
  static_assert(groups::group_of("b.w.weight") == 1 && groups::group_of("b.z.weight") == 5);
  static_assert(groups::caps[1][0] == 7 && groups::caps[5][0] == 5);
  static_assert(groups::any_at_or_below("c.y") && !groups::any_at_or_below("c.y.z"));
  using with_root =
      parameter_groups<replicate_policy<ike::groups_by_module<ike::together<"a", "">, "b">>>;
  static_assert(with_root::count == 2 && with_root::at("a") == 0 && with_root::at("b") == 1);
  CHECK(groups::group_of("e.weight") == 0);
}

TEST_CASE("Predicates are asked of a parameter's path and of those of the modules above it") {
  using biases = parameter_groups<replicate_policy<ike::ignored_if<ends_with_bias>>>;
  static_assert(biases::is_ignored("a.bias") && !biases::is_ignored("a.weight"));
  static_assert(biases::is_ignored("bias.x.weight") && biases::is_ignored("debias.weight"));
  using lambda = parameter_groups<replicate_policy<
      ike::ignored<"scale">, ike::ignored_if<[](std::string_view p) { return p == "a.b"; }>>>;
  static_assert(lambda::is_ignored("a.b.weight") && !lambda::is_ignored("a.bc.weight"));
  static_assert(lambda::is_ignored("scale") && !lambda::is_ignored("a.scale"));
  CHECK(lambda::ignores_any);
}

TEST_CASE("Overrides answer for what is below them, the deepest that says anything") {
  using policy =
      replicate_policy<ike::groups_by_module<"a.b.c">, ike::bucket_cap<100>,
                       ike::override_at<"a", ike::bucket_cap<7>, ike::comm_hook<ike::noop_hook>>,
                       ike::override_at<"a.b", ike::gradient_divide_factor<1, 2>,
                                        ike::requires_gradient_sync<false>>>;
  using groups = parameter_groups<policy>;
  static_assert(groups::count == 4);
  constexpr int root = 0, c = 1, a = 2, b = 3;
  static_assert(groups::at("a.b.c") == c && groups::at("a") == a && groups::at("a.b") == b);
  static_assert(groups::caps[root][0] == 100 && groups::caps[c][0] == 7 && groups::caps[b][0] == 7);
  static_assert(groups::hooks[root] == 0 && groups::hooks[a] == 1 && groups::hooks[c] == 1);
  static_assert(groups::divide_factors[a] == 0 && groups::divide_factors[b] == 0.5 &&
                groups::divide_factors[c] == 0.5);
  static_assert(groups::synchronises[a] && !groups::synchronises[b] && !groups::synchronises[c]);
  CHECK(groups::group_of("a.b.weight") == b);
}
