#pragma once

#include <boost/hana/tuple.hpp>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/refusal.hpp"
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
/// Whether M holds modules or models, and is none.
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

}  // namespace detail

/// Makes the model one of `group.size()` replicas: `replicate<policy>(initialize<float, S>(net,
/// seed{1}), group)`. Compares the models of all ranks (state_error names the first path that
/// differs, on every rank) and copies the parameters and buffers of rank 0 to all. A hook with
/// options of run time is the last argument. The group must outlive the result. Allocates.
template <class Policy = replicate_policy<>, class Model, process_group Group, class... Hook>
requires(sizeof...(Hook) <= 1) auto replicate(Model model, Group& group, Hook... hook) {
  static_assert(is_replicate_policy<Policy>,
                "ikebana: replicate<Policy> expects a replicate_policy<...>");
  constexpr bool once = !detail::is_replicated<Model> || detail::is_sharded<Model>;
  static_assert(once, "ikebana: replicate was already applied to this model");
  static_assert(!detail::is_sharded<Model>,
                "ikebana: replicate cannot be applied to a model that is already sharded");
  static_assert(!detail::module_container<Model>,
                "ikebana: replicate does not support containers, which have no forward: make a "
                "network of what is in it, with sequential or graph");
  constexpr bool is_initialized = requires(Model & m) { m.current_program(); };
  static_assert(is_initialized || detail::module_container<Model>,
                "ikebana: replicate needs an initialized model: initialize<T, shape>(module, seed) "
                "gives one");
  if constexpr (is_replicate_policy<Policy> && !detail::is_replicated<Model> && is_initialized) {
    constexpr diagnostic wrong = detail::check_paths<Policy, Model>();
    if constexpr (!wrong.ok())
      static_cast<void>(sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
    if constexpr (policy_has<Policy, detail::mixed_precision_key>) {
      constexpr diagnostic unfit =
          policy_option<Policy, detail::mixed_precision_key>::template check<
              typename Model::value_type>(module_tree_of(typename Model::module_type{}));
      if constexpr (!unfit.ok())
        static_cast<void>(
            sizeof(refusal_t<unfit.path, unfit.expected, unfit.got, unfit.message()>));
    }
    using hook_type = typename Policy::hook_type;
    constexpr bool fits = std::is_constructible_v<hook_type, Hook...>;
    static_assert(
        fits,
        "ikebana: replicate expects a hook of the policy's comm_hook as its last argument, "
        "and needs one where that has no default");
    if constexpr (policy_has<Policy, detail::invariant_key>)
      return invariant_replicated<Policy, Model, Group>(std::move(model), group);
    else if constexpr (fits)
      return replicated<Policy, Model, Group>(std::move(model), group,
                                              hook_type(std::move(hook)...));
  }
}

}  // namespace ikebana
