#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/replicate/buckets/buckets.hpp"
#include "ikebana/replicate/override_at.hpp"
#include "ikebana/replicate/path_options.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/utils/module_tree.hpp"
#include "ikebana/replicate/utils/root_modules.hpp"

namespace ikebana::detail {

constexpr bool nothing_is_covered(std::string_view) { return false; }

template <std::size_t N>
struct group_paths {
  std::array<std::string_view, N> paths;
  std::size_t count;
};

template <std::size_t N, std::size_t Listed, class... Overrides>
constexpr group_paths<N> list_groups(const std::array<std::string_view, Listed>& listed,
                                     std::tuple<Overrides...>*) {
  group_paths<N> out{{}, 1};
  const auto add = [&out](std::string_view path) {
    for (std::size_t g = 0; g < out.count; ++g)
      if (out.paths[g] == path) return;
    out.paths[out.count++] = path;
  };
  for (const std::string_view path : listed) add(path);
  (add(Overrides::path), ...);
  return out;
}

/// The groups that a policy cuts parameters into, and what it says of each. Group 0 is the network:
/// what is in no other.
template <class Policy>
struct parameter_groups {
  using overrides = typename Policy::overrides;
  using listed = policy_option<Policy, groups_key, path_list<>>;
  using ignored_paths = policy_option<Policy, ignored_key, ignored<>>;
  using ignored_predicate = policy_option<Policy, ignored_if_key, ignored_if<&nothing_is_covered>>;
  using delayed_paths = policy_option<Policy, delay_all_reduce_key, path_list<>>;

  static constexpr bool ignores_any =
      policy_has<Policy, ignored_key> || policy_has<Policy, ignored_if_key>;
  static constexpr bool delays_any = policy_has<Policy, delay_all_reduce_key>;

  static constexpr std::size_t listed_count = listed::paths.size();
  static constexpr std::size_t most = 1 + listed_count + std::tuple_size_v<overrides>;

  static constexpr group_paths<most> groups() {
    return list_groups<most>(listed::paths, static_cast<overrides*>(nullptr));
  }
  static constexpr std::size_t count = groups().count;

  /// The group at exactly this path; -1 if there is none.
  static constexpr int at(std::string_view path) {
    const auto all = groups();
    for (std::size_t g = 0; g < count; ++g)
      if (all.paths[g] == path) return static_cast<int>(g);
    return -1;
  }

  static constexpr bool any_at_or_below(std::string_view path) {
    const auto all = groups();
    for (std::size_t g = 0; g < count; ++g)
      if (is_at_or_below(all.paths[g], path)) return true;
    return false;
  }

  static constexpr bool is_ignored(std::string_view path) {
    return ignored_paths::covers(path) || ignored_predicate::covers(path);
  }
  static constexpr bool is_delayed(std::string_view path) {
    if constexpr (delays_any)
      return delayed_paths::covers(path);
    else
      return false;
  }
  /// The group of a parameter; negative if it is in no bucket.
  static constexpr int group_of(std::string_view path) {
    if (is_ignored(path) || is_delayed(path)) return -1;
    const auto all = groups();
    return managing_root(path, std::span{all.paths}.first(count));
  }

  /// Which of the overrides answers Key for group G; -1: the policy does.
  template <class Key, std::size_t G>
  static constexpr int override_for = find_override<Key>(static_cast<overrides*>(nullptr),
                                                         groups().paths[G]);

  template <int Override, class Key, class Default>
  struct said_by : std::tuple_element_t<Override, overrides>::template option_of<Key, Default> {};
  template <class Key, class Default>
  struct said_by<-1, Key, Default> : std::type_identity<policy_option<Policy, Key, Default>> {};

  /// What is said to Key for group G.
  template <class Key, std::size_t G, class Default>
  using option = typename said_by<override_for<Key, G>, Key, Default>::type;

  struct one_bucket {
    static constexpr std::array<dim_t, 1> value{std::numeric_limits<dim_t>::max()};
  };
  using default_caps =
      std::conditional_t<listed_count == 0,
                         bucket_caps<default_bucket_caps[0], default_bucket_caps[1]>, one_bucket>;

  template <class F, std::size_t... G>
  static constexpr auto of_each(const F& f, std::index_sequence<G...>) {
    return std::array{f(std::integral_constant<std::size_t, G>{})...};
  }
  /// f(std::integral_constant<std::size_t, g>) for each group, as an array.
  template <class F>
  static constexpr auto of_each(const F& f) {
    return of_each(f, std::make_index_sequence<count>{});
  }

  static constexpr std::array<std::span<const dim_t>, count> caps =
      of_each([]<std::size_t G>(std::integral_constant<std::size_t, G>) {
        return std::span<const dim_t>(option<bucket_caps_key, G, default_caps>::value);
      });
  /// By what gradients are divided; 0 for the number of ranks.
  static constexpr std::array<double, count> divide_factors =
      of_each([]<std::size_t G>(std::integral_constant<std::size_t, G>) {
        return option<divide_factor_key, G, gradient_divide_factor<0>>::value;
      });
  static constexpr std::array<bool, count> synchronises =
      of_each([]<std::size_t G>(std::integral_constant<std::size_t, G>) {
        return option<gradient_sync_key, G, requires_gradient_sync<true>>::value;
      });
  /// By group: its hook's place among the policy's hook and those of all overrides.
  static constexpr std::array<std::size_t, count> hooks =
      of_each([]<std::size_t G>(std::integral_constant<std::size_t, G>) {
        return static_cast<std::size_t>(override_for<comm_hook_key, G> + 1);
      });
};

/// What is wrong with the paths of a policy for a model.
template <class Policy, class Model>
constexpr diagnostic check_paths() {
  using groups = parameter_groups<Policy>;
  if constexpr (groups::most > 1 || groups::ignored_paths::paths.size() > 0 || groups::delays_any) {
    const auto tree = module_tree_of(typename Model::module_type{});
    const auto complain = [](const char* what, std::string_view path) {
      return diagnostic{what, 0, 0, {}, {}, path_text{path}};
    };
    for (const std::string_view p : groups::ignored_paths::paths)
      if (tree.find(p) < 0 && !tree.has_state(p))
        return complain("is not the path of a module, parameter or buffer to ignore", p);
    for (const std::string_view p : groups::delayed_paths::paths) {
      if (tree.find(p) < 0 && !tree.has_parameter(p))
        return complain("is not the path of a module or parameter to delay", p);
      if (groups::is_ignored(p)) return complain("is both ignored and delayed", p);
    }
    for (std::size_t i = 0; i < groups::listed_count; ++i) {
      const std::string_view p = groups::listed::paths[i];
      if (tree.find(p) < 0) return complain("is not the path of a module to make a group of", p);
      for (std::size_t j = 0; j < i; ++j)
        if (groups::listed::paths[j] == p)
          return complain(
              "replicate was already applied to this module: groups_by_module names it "
              "twice",
              p);
    }
    const auto all = groups::groups();
    for (std::size_t g = 1; g < groups::count; ++g) {
      if (tree.find(all.paths[g]) < 0 && !tree.has_parameter(all.paths[g]))
        return complain("is not the path of a module or parameter to override options at",
                        all.paths[g]);
      if (groups::is_ignored(all.paths[g]))
        return complain("is both ignored and a group", all.paths[g]);
    }
    if constexpr (groups::listed_count > 0) {
      const auto lowered = Model::lowered();
      for (const program_parameter& parameter : lowered.all_parameters())
        if (parameter.spec.extents.rank() == 0)
          return complain(
              "groups_by_module does not support scalar parameters: make it a vector of "
              "one element",
              lowered.path(parameter).view());
    }
  }
  return {};
}

}  // namespace ikebana::detail
