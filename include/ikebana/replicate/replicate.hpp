#pragma once

#include <array>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/unknown_path.hpp"
#include "ikebana/replicate/exchange_in_group.hpp"
#include "ikebana/replicate/feature.hpp"
#include "ikebana/replicate/invariant/invariant_replicated.hpp"
#include "ikebana/replicate/mixed_precision.hpp"
#include "ikebana/replicate/parameter_groups.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/replicated.hpp"
#include "ikebana/replicate/shard_optimizer.hpp"
#include "ikebana/replicate/utils/module_tree.hpp"

namespace ikebana {

namespace detail {

template <class M>
inline constexpr bool is_replicated = false;
/// Whether ranks have different parts of a model, or of its optimizer's state.
template <class M>
inline constexpr bool is_sharded = false;
template <class M>
inline constexpr bool is_hana_tuple = false;
template <class... M>
inline constexpr bool is_hana_tuple<boost::hana::tuple<M...>> = true;
/// Whether M contains modules or models without being one.
template <class M>
concept module_container = !any_module<M> && !requires(M & m) {
  m.current_program();
}
&&(
    requires { std::tuple_size<M>::value; } || requires(M & m) { m.begin(); } || is_hana_tuple<M>);

template <class Policy, class Model, class Group>
inline constexpr bool is_replicated<replicated<Policy, Model, Group>> = true;
template <class Policy, class Model, class Group>
inline constexpr bool is_sharded<replicated<Policy, Model, Group>> = shards_optimizer<Policy>;
template <class Policy, class Model, class Group>
inline constexpr bool is_replicated<invariant_replicated<Policy, Model, Group>> = true;

namespace misuse {

IKEBANA_MISUSE(replicate_without_a_policy, "replicate<Policy> expects a replicate_policy<...>");
IKEBANA_MISUSE(replicate_of_a_sharded_model,
               "replicate cannot be applied to a model that is already sharded");
IKEBANA_MISUSE(replicate_twice, "replicate was already applied to this model");
IKEBANA_MISUSE(
    replicate_of_sparse_gradients,
    "replicate averages the rows of sparse<true> by all_reduce, at the end of backward: leave out "
    "sparse<true>, or what takes dense gradients: comm_hook, shard_optimizer, mixed_precision, "
    "invariant, gradient_accumulation");
IKEBANA_MISUSE(
    replicate_of_sparse_gradients_that_may_be_absent,
    "replicate averages the rows of sparse<true> in networks whose backward always reaches all "
    "parameters: leave out sparse<true>, or choose and outputs without a gradient");
IKEBANA_MISUSE(replicate_of_exchanges_with_invariant,
               "invariant computes each slice of a batch by itself, and sync_batch_norm needs the "
               "whole: leave out one of them");
IKEBANA_MISUSE(replicate_of_a_container,
               "replicate does not support containers, which have no forward: make a network of "
               "what is in it, with sequential or graph");
IKEBANA_MISUSE(
    replicate_of_a_module,
    "replicate needs an initialized model: initialize<T, shape>(module, seed) gives one");
IKEBANA_MISUSE(
    not_a_comm_hook,
    "comm_hook expects a hook: a type with `result`, start(bucket, group) that returns a "
    "handle, and finish(bucket, group)");
IKEBANA_MISUSE(replicate_with_another_hook,
               "replicate expects a hook of the policy's comm_hook as its last argument, and needs "
               "one where that has no default");

}  // namespace misuse

template <class Policy, class Model>
constexpr diagnostic check_policy() {
  if (const diagnostic wrong = check_paths<Policy, Model>(); !wrong.ok()) return wrong;
  if constexpr (policy_has<Policy, mixed_precision_key>)
    return policy_option<Policy, mixed_precision_key>::template check<typename Model::value_type>(
        module_tree_of(typename Model::module_type{}));
  return {};
}

/// The paths of modules, for the refusal of a policy's path.
template <class Policy, class Model>
struct policy_paths : module_paths<typename Model::module_type> {
  static constexpr std::string_view prefix = "is not the path of a ";
  static constexpr std::string_view fault = check_policy<Policy, Model>().what;
  static constexpr bool are_unknown = fault.starts_with(prefix);
  static constexpr std::string_view what = fault.substr(are_unknown ? prefix.size() : 0);
};

template <class Policy, class Model>
constexpr auto find_policy_refusal() {
  using paths = policy_paths<Policy, Model>;
  if constexpr (paths::are_unknown)
    return find_path_refusal<check_policy<Policy, Model>().path, paths>();
  else
    return find_refusal<check_policy<Policy, Model>>();
}

/// By group, whether its hook is the default one.
template <class Policy, class... Overrides>
constexpr bool averages_group(std::size_t group, std::tuple<Overrides...>*) {
  const std::array averages{
      std::is_same_v<typename Policy::hook_type, all_reduce_hook>,
      std::is_same_v<typename Overrides::template option_of<comm_hook_key,
                                                            comm_hook<all_reduce_hook>>::type::type,
                     all_reduce_hook>...};
  return averages[parameter_groups<Policy>::hooks[group]];
}

/// Whether the policy leaves alone the gradients that are rows, if the model has any.
template <class Policy, class Model>
constexpr bool reduces_rows() {
  if constexpr (Model::row_parameters == 0) {
    return true;
  } else if constexpr (policy_has<Policy, invariant_key> ||
                       policy_has<Policy, mixed_precision_key> ||
                       policy_has<Policy, gradient_accumulation_key> || shards_optimizer<Policy>) {
    return false;
  } else {
    using groups = parameter_groups<Policy>;
    const auto& lowered = Model::lowered();
    for (const program_parameter& p : lowered.all_parameters()) {
      const path_text path = lowered.path(p);
      if (p.spec.rows_in < 0 || groups::is_ignored(path.view())) continue;
      const int group = groups::group_of(path.view());
      if (!averages_group<Policy>(group < 0 ? 0 : static_cast<std::size_t>(group),
                                  static_cast<typename Policy::overrides*>(nullptr)))
        return false;
    }
    return true;
  }
}

template <class Policy, class Model, class Group, class... Hook>
constexpr auto find_replicate_refusal() {
  if constexpr (!is_replicate_policy<Policy>) {
    return because<misuse::replicate_without_a_policy>{};
  } else if constexpr (is_sharded<Model>) {
    return because<misuse::replicate_of_a_sharded_model>{};
  } else if constexpr (is_replicated<Model>) {
    return because<misuse::replicate_twice>{};
  } else if constexpr (module_container<Model>) {
    return because<misuse::replicate_of_a_container>{};
  } else if constexpr (!requires(Model & m) { m.current_program(); }) {
    return because<misuse::replicate_of_a_module>{};
  } else if constexpr (!std::is_same_v<decltype(option_refusal<Policy>::find()), accepted>) {
    return option_refusal<Policy>::find();
  } else if constexpr (!reduces_rows<Policy, Model>()) {
    return because<misuse::replicate_of_sparse_gradients>{};
  } else if constexpr (Model::row_parameters > 0 && Model::may_lack_gradients) {
    return because<misuse::replicate_of_sparse_gradients_that_may_be_absent>{};
  } else if constexpr (has_exchanges<Model> && policy_has<Policy, invariant_key>) {
    return because<misuse::replicate_of_exchanges_with_invariant>{};
  } else if constexpr (!check_policy<Policy, Model>().ok()) {
    return find_policy_refusal<Policy, Model>();
  } else if constexpr (!comm_hook_for<typename Policy::hook_type, typename Model::value_type,
                                      Group>) {
    return because<misuse::not_a_comm_hook>{};
  } else if constexpr (!std::is_constructible_v<typename Policy::hook_type, Hook...>) {
    return because<misuse::replicate_with_another_hook>{};
  } else {
    return accepted{};
  }
}

/// Throws for a leaf whose forward changes the rows of its parameter that one rank selects.
struct refuse_max_norm {
  template <class Leaf>
  void operator()(const Leaf& leaf) {
    if constexpr (requires { leaf.max_norm.has_value(); })
      if (leaf.max_norm)
        throw_error(error("replicate: max_norm of an " + std::string{Leaf::kind} +
                          " scales the rows that a rank selects, so that ranks would differ"));
  }
};

template <class Policy, class Model, class Group, class... Hook>
inline constexpr bool replicates =
    std::is_same_v<decltype(find_replicate_refusal<Policy, Model, Group, Hook...>()), accepted>;

}  // namespace detail

/// Makes the model one of `group.size()` replicas: `replicate<policy>(initialize<float, S>(net,
/// seed{1}), group)`. Compares the policies of all ranks (with a hook's run-time options) and their
/// models (the state_error on every rank names the options, or the first path, that differ) and
/// copies the parameters and persistent buffers of rank 0 to all. A hook with run-time options is
/// the last argument. The group must outlive the result. Allocates. Throws communication_error if a
/// rank fails, and error, before anything has changed, if an embedding has a max_norm.
template <class Policy = replicate_policy<>, class Model, process_group Group, class... Hook>
requires(sizeof...(Hook) <= 1 && detail::replicates<Policy, Model, Group, Hook...>) auto replicate(
    Model model, Group& group, Hook... hook) {
  if constexpr (requires { model.module(); }) {
    detail::refuse_max_norm check;
    detail::for_each_leaf(std::as_const(model).module(), check);
  }
  if constexpr (policy_has<Policy, detail::invariant_key>)
    return invariant_replicated<Policy, Model, Group>(std::move(model), group);
  else
    return replicated<Policy, Model, Group>(std::move(model), group,
                                            typename Policy::hook_type(std::move(hook)...));
}
template <class Policy = replicate_policy<>, class Model, process_group Group, class... Hook>
requires(sizeof...(Hook) <= 1 &&
         !detail::replicates<Policy, Model, Group, Hook...>) auto replicate(const Model&, Group&,
                                                                            const Hook&...)
    -> decltype(detail::declared(detail::find_replicate_refusal<Policy, Model, Group, Hook...>()));

namespace detail::misuse {
IKEBANA_MISUSE(
    replicate_takes_a_model_and_a_group,
    "replicate takes a model and a group, which outlives it: launch(threads{2}, [&](auto& "
    "group) { auto model = replicate(initialize<T, shape>(net, seed{1}), group); })");
}  // namespace detail::misuse

template <class Policy = replicate_policy<>, class Model>
auto replicate(const Model&)
    -> decltype(detail::refuse_for<detail::misuse::replicate_takes_a_model_and_a_group, Model>());

}  // namespace ikebana
