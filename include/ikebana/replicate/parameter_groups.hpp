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

/// The modules and parameters at which groups begin, by path. Group 0 begins at the network.
template <std::size_t N>
struct group_roots {
  std::array<std::string_view, N> paths{};
  std::array<std::size_t, N> groups{};
  std::size_t count = 1, group_count = 1;

  constexpr std::span<const std::string_view> all() const { return std::span{paths}.first(count); }
  /// The root at exactly this path; count if there is none.
  constexpr std::size_t find(std::string_view path) const {
    std::size_t r = 0;
    while (r < count && paths[r] != path) ++r;
    return r;
  }
  /// The first root of a group.
  constexpr std::size_t first_of(std::size_t group) const {
    std::size_t r = 0;
    while (groups[r] != group) ++r;
    return r;
  }
  constexpr void add(std::string_view path, std::size_t group) {
    if (find(path) < count) return;
    paths[count] = path;
    groups[count++] = group;
  }
};

template <std::size_t N, class Listed, class... Overrides>
constexpr group_roots<N> list_roots(std::tuple<Overrides...>*) {
  group_roots<N> out;
  // g++ 12 ignores the member initialisers of array members in a constant expression.
  for (std::size_t r = 0; r < N; ++r) out.paths[r] = "", out.groups[r] = 0;
  for (std::size_t i = 0; i < Listed::paths.size();) {
    const std::size_t first = i, listed = Listed::groups[i];
    std::size_t group = out.group_count;
    for (; i < Listed::paths.size() && Listed::groups[i] == listed; ++i)
      if (Listed::paths[i].empty()) group = 0;
    for (std::size_t p = first; p < i; ++p) out.add(Listed::paths[p], group);
    out.group_count += out.groups[out.count - 1] == out.group_count;
  }
  [[maybe_unused]] const auto add = [&out](std::string_view path) {
    if (out.find(path) == out.count) out.add(path, out.group_count++);
  };
  (add(Overrides::path), ...);
  return out;
}

/// The groups into which a policy divides parameters, and the options of each. Group 0 contains the
/// parameters that are in no other group.
template <class Policy>
struct parameter_groups {
  using overrides = typename Policy::overrides;
  using listed = policy_option<Policy, groups_key, grouped_paths<>>;
  using ignored_paths = policy_option<Policy, ignored_key, ignored<>>;
  using ignored_predicate = policy_option<Policy, ignored_if_key, ignored_if<&nothing_is_covered>>;
  using delayed_paths = policy_option<Policy, delay_all_reduce_key, path_list<>>;

  static constexpr bool ignores_any =
      policy_has<Policy, ignored_key> || policy_has<Policy, ignored_if_key>;
  static constexpr bool delays_any = policy_has<Policy, delay_all_reduce_key>;

  static constexpr std::size_t listed_count = listed::paths.size();
  static constexpr std::size_t most = 1 + listed_count + std::tuple_size_v<overrides>;

  static constexpr group_roots<most> roots =
      list_roots<most, listed>(static_cast<overrides*>(nullptr));
  static constexpr std::size_t count = roots.group_count;

  /// The group that begins at exactly this path; -1 if there is none.
  static constexpr int at(std::string_view path) {
    const std::size_t r = roots.find(path);
    return r < roots.count ? static_cast<int>(roots.groups[r]) : -1;
  }

  static constexpr bool any_at_or_below(std::string_view path) {
    for (const std::string_view root : roots.all())
      if (is_at_or_below(root, path)) return true;
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
    const int root = managing_root(path, roots.all());
    return root < 0 ? -1 : static_cast<int>(roots.groups[static_cast<std::size_t>(root)]);
  }

  /// The path by which the options of a group are looked up: the first of its roots.
  static constexpr std::string_view path_of(std::size_t group) {
    return roots.paths[roots.first_of(group)];
  }

  /// Whether options are overridden at exactly this path.
  static constexpr bool overrides_at(std::string_view path) {
    return []<class... O>([[maybe_unused]] std::string_view p, std::tuple<O...>*) {
      return ((O::path == p) || ...);
    }(path, static_cast<overrides*>(nullptr));
  }

  /// The index of the override that has the option for Key and group G; -1 for the policy.
  template <class Key, std::size_t G>
  static constexpr int override_for = find_override<Key>(static_cast<overrides*>(nullptr),
                                                         path_of(G));

  template <int Override, class Key, class Default>
  struct said_by : std::tuple_element_t<Override, overrides>::template option_of<Key, Default> {};
  template <class Key, class Default>
  struct said_by<-1, Key, Default> : std::type_identity<policy_option<Policy, Key, Default>> {};

  /// The option for Key and group G.
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
  /// An array of f(std::integral_constant<std::size_t, g>) for each group.
  template <class F>
  static constexpr auto of_each(const F& f) {
    return of_each(f, std::make_index_sequence<count>{});
  }

  static constexpr std::array<std::span<const dim_t>, count> caps =
      of_each([]<std::size_t G>(std::integral_constant<std::size_t, G>) {
        return std::span<const dim_t>(option<bucket_caps_key, G, default_caps>::value);
      });
  /// The divisors of gradients; 0 for the number of ranks.
  static constexpr std::array<double, count> divide_factors =
      of_each([]<std::size_t G>(std::integral_constant<std::size_t, G>) {
        return option<divide_factor_key, G, gradient_divide_factor<0>>::value;
      });
  static constexpr std::array<bool, count> synchronises =
      of_each([]<std::size_t G>(std::integral_constant<std::size_t, G>) {
        return option<gradient_sync_key, G, requires_gradient_sync<true>>::value;
      });
  /// By group: the index of its hook among the policy's hook and those of all overrides.
  static constexpr std::array<std::size_t, count> hooks =
      of_each([]<std::size_t G>(std::integral_constant<std::size_t, G>) {
        return static_cast<std::size_t>(override_for<comm_hook_key, G> + 1);
      });
};

/// Checks the paths of a policy for a model.
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
    for (std::size_t r = 1; r < groups::roots.count; ++r) {
      const std::string_view p = groups::roots.paths[r];
      if (tree.find(p) < 0 && !tree.has_parameter(p))
        return complain("is not the path of a module or parameter to override options at", p);
      if (groups::is_ignored(p)) return complain("is both ignored and a group", p);
      if (groups::overrides_at(p) && groups::roots.first_of(groups::roots.groups[r]) != r)
        return complain("is in one group with others: override options at the first of them", p);
    }
    if constexpr (groups::listed_count > 0) {
      const auto& lowered = Model::lowered();
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
