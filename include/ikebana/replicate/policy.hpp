#pragma once

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/replicate/buckets/buckets.hpp"
#include "ikebana/replicate/comm_hook.hpp"
#include "ikebana/replicate/compress.hpp"
#include "ikebana/replicate/feature.hpp"
#include "ikebana/replicate/find_option.hpp"
#include "ikebana/replicate/override_at.hpp"
#include "ikebana/replicate/path_options.hpp"

namespace ikebana {

namespace detail {

/// The default hook of a policy: that of its mixed_precision, if it has one.
template <class Mixed>
struct default_hook : std::type_identity<typename Mixed::hook_type> {};
template <>
struct default_hook<void> : std::type_identity<all_reduce_hook> {};

/// The hook after all options with `template <class Hook, class... All> using hook` have wrapped
/// it, where All are the options of the policy.
template <class Hook, class All, class... Options>
struct hook_through : std::type_identity<Hook> {};
template <class Hook, class All, class First, class... Rest>
struct hook_through<Hook, All, First, Rest...> : hook_through<Hook, All, Rest...> {};
template <class Hook, class... All, class First, class... Rest>
requires requires { typename First::template hook<Hook, All...>; }
struct hook_through<Hook, void(All...), First, Rest...>
    : hook_through<typename First::template hook<Hook, All...>, void(All...), Rest...> {};

template <class Option>
concept replicate_option = requires {
  typename Option::replicate_key;
};

/// Whether none of the other Options says the same thing.
template <class Option, class... Options>
constexpr bool is_given_once() {
  if constexpr (replicate_option<Option>)
    return (int{answers<typename Option::replicate_key, Options>} + ... + 0) == 1;
  else
    return true;
}

namespace misuse {
IKEBANA_MISUSE(option_not_of_a_policy,
               "replicate_policy got a type that is not one of its options, which are bucket_cap, "
               "bucket_caps, groups_by_module, override_at, ignored, ignored_if, delay_all_reduce, "
               "comm_hook, gradient_divide_factor, gradient_accumulation, requires_gradient_sync, "
               "broadcast_buffers, buffer_comm_hook, find_unused_parameters, static_graph, "
               "skip_unused, init_sync, invariant, mixed_precision, shard_optimizer, "
               "optimizer_in_backward and traced");
IKEBANA_MISUSE(option_given_twice,
               "replicate_policy is given two options that say the same thing, such as two "
               "bucket_cap");
IKEBANA_MISUSE(option_not_of_an_override,
               "override_at takes bucket_cap, bucket_caps, comm_hook, gradient_divide_factor and "
               "requires_gradient_sync");
}  // namespace misuse

}  // namespace detail

/// The caps of the buckets in bytes, bucket by bucket; the last one applies to all that follow.
template <dim_t... Bytes>
struct bucket_caps {
  static_assert(sizeof...(Bytes) > 0 && ((Bytes > 0) && ...),
                "ikebana: bucket_caps expects one or more numbers of bytes above 0");
  using replicate_key = detail::bucket_caps_key;
  static constexpr std::array<dim_t, sizeof...(Bytes)> value{Bytes...};
};

/// One cap for all buckets, including the first: `bucket_cap<MiB(25)>`.
template <dim_t Bytes>
struct bucket_cap {
  static_assert(Bytes > 0, "ikebana: bucket_cap expects a number of bytes above 0");
  using replicate_key = detail::bucket_caps_key;
  static constexpr std::array<dim_t, 1> value{Bytes};
};

/// PyTorch's groups by size: buckets of approximately this many bytes at most.
template <dim_t Bytes>
using groups_by_bytes = bucket_cap<Bytes>;

/// The communication of a bucket between backward and the optimizer: `comm_hook<bf16_compress>`. A
/// hook with run-time options is passed to `replicate` as an object of this type.
template <class Hook>
struct comm_hook {
  using replicate_key = detail::comm_hook_key;
  using type = Hook;
};

/// Whether buffers (running statistics) are broadcast from rank 0 at the end of every synchronised
/// backward, so that all ranks have the same state between steps, and a rank can evaluate alone.
/// (DistributedDataParallel does it in the following forward, even in evaluation.)
/// `buffer_comm_hook` replaces the broadcast.
template <bool Value>
struct broadcast_buffers {
  using replicate_key = detail::broadcast_buffers_key;
  static constexpr bool value = Value;
};

/// Whether parameters and persistent buffers are broadcast from rank 0 when a model is replicated.
/// Non-persistent buffers, such as recurrent states, remain different on each rank. Policies,
/// paths, types and shapes are compared across ranks in any case.
template <bool Value>
struct init_sync {
  using replicate_key = detail::init_sync_key;
  static constexpr bool value = Value;
};

/// The divisor of the sum of gradients over the ranks, instead of the number of ranks: Numerator /
/// Denominator. Averages, which most hooks compute, are rescaled; a hook with local results is left
/// alone.
template <dim_t Numerator, dim_t Denominator = 1>
struct gradient_divide_factor {
  static_assert(Numerator >= 0 && Denominator > 0,
                "ikebana: gradient_divide_factor expects a number above 0");
  using replicate_key = detail::divide_factor_key;
  static constexpr double value = static_cast<double>(Numerator) / static_cast<double>(Denominator);
};

/// Whether backward reduces gradients, until `set_requires_gradient_sync` changes it.
template <bool Value>
struct requires_gradient_sync {
  using replicate_key = detail::gradient_sync_key;
  static constexpr bool value = Value;
};

/// How a model is replicated: options as types, in any order, each at most once.
/// `replicate_policy<bucket_cap<MiB(25)>, comm_hook<bf16_compress>>`
template <class... Options>
class replicate_policy {
  // `replicate` refuses a policy before it is instantiated, in the user's line.
  static_assert((detail::replicate_option<Options> && ...),
                "ikebana: replicate_policy got a type that is not one of its options");
  static_assert((detail::is_given_once<Options, Options...>() && ...),
                "ikebana: replicate_policy is given two options that say the same thing, such as "
                "two bucket_cap");
  static_assert((detail::overrides_well<Options> && ...),
                "ikebana: override_at takes bucket_cap, bucket_caps, comm_hook, "
                "gradient_divide_factor and requires_gradient_sync");

 public:
  /// The option with this Key, or Default.
  template <class Key, class Default>
  using option = typename detail::find_option<Key, Default, Options...>::type;

  /// The objects of those options that take part in steps; see feature.hpp.
  template <class Model, class Group>
  using features = decltype(std::tuple_cat(
      std::declval<typename detail::feature_of<Options, Model, Group>::type>()...));

  /// Its override_at options, as a std::tuple.
  using overrides =
      decltype(std::tuple_cat(std::declval<typename detail::override_of<Options>::type>()...));

  /// The caps of the buckets in bytes, for `plan_buckets`.
  static constexpr auto caps =
      option<detail::bucket_caps_key,
             bucket_caps<default_bucket_caps[0], default_bucket_caps[1]>>::value;
  using hook_type = typename detail::hook_through<
      typename option<detail::comm_hook_key,
                      detail::default_hook<option<detail::mixed_precision_key, void>>>::type,
      void(Options...), Options...>::type;
  static constexpr bool broadcasts_buffers =
      option<detail::broadcast_buffers_key, ikebana::broadcast_buffers<true>>::value;
  static constexpr bool syncs_at_start =
      option<detail::init_sync_key, ikebana::init_sync<true>>::value;
};

/// The option of a policy with this Key, or Default.
template <class Policy, class Key, class Default = void>
using policy_option = typename Policy::template option<Key, Default>;

/// Whether a policy has an option with this Key.
template <class Policy, class Key>
inline constexpr bool policy_has = !std::is_void_v<policy_option<Policy, Key>>;

template <class P>
inline constexpr bool is_replicate_policy = false;
template <class... Options>
inline constexpr bool is_replicate_policy<replicate_policy<Options...>> = true;

namespace detail {

/// The refusal of a policy's options, found without an instance of the policy: a std::type_identity
/// of it, or accepted.
template <class Policy>
struct option_refusal;
template <class... Options>
struct option_refusal<replicate_policy<Options...>> {
  static constexpr auto find() {
    if constexpr (!(replicate_option<Options> && ...))
      return because<misuse::option_not_of_a_policy>{};
    else if constexpr (!(is_given_once<Options, Options...>() && ...))
      return because<misuse::option_given_twice>{};
    else if constexpr (!(overrides_well<Options> && ...))
      return because<misuse::option_not_of_an_override>{};
    else
      return accepted{};
  }
};

}  // namespace detail

}  // namespace ikebana
