#pragma once

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/replicate/buckets/buckets.hpp"
#include "ikebana/replicate/comm_hook.hpp"
#include "ikebana/replicate/compress.hpp"
#include "ikebana/replicate/feature.hpp"
#include "ikebana/replicate/find_option.hpp"
#include "ikebana/replicate/override_at.hpp"
#include "ikebana/replicate/path_options.hpp"

namespace ikebana {

namespace detail {

/// The hook where the policy names none: that of its mixed_precision, if it has one.
template <class Mixed>
struct default_hook : std::type_identity<typename Mixed::hook_type> {};
template <>
struct default_hook<void> : std::type_identity<all_reduce_hook> {};

/// A hook after what the options with `template <class Hook, class... All> using hook`, where All
/// are all of the policy's, make of it.
template <class Hook, class All, class... Options>
struct hook_through : std::type_identity<Hook> {};
template <class Hook, class All, class First, class... Rest>
struct hook_through<Hook, All, First, Rest...> : hook_through<Hook, All, Rest...> {};
template <class Hook, class... All, class First, class... Rest>
requires requires { typename First::template hook<Hook, All...>; }
struct hook_through<Hook, void(All...), First, Rest...>
    : hook_through<typename First::template hook<Hook, All...>, void(All...), Rest...> {};

/// Instantiated for each option, so that the compiler names the one that is wrong.
template <class Option, class... Options>
struct check_replicate_option {
  static constexpr bool known = requires { typename Option::replicate_key; };
  static_assert(known,
                "ikebana: replicate_policy takes bucket_cap, bucket_caps, groups_by_module, "
                "override_at, ignored, ignored_if, delay_all_reduce, comm_hook, "
                "gradient_divide_factor, gradient_accumulation, requires_gradient_sync, "
                "broadcast_buffers, buffer_comm_hook, find_unused_parameters, static_graph, "
                "skip_unused, init_sync, invariant, mixed_precision, "
                "shard_optimizer, optimizer_in_backward and traced; this type is none of them");

  static constexpr bool once = [] {
    if constexpr (known)
      return (int{answers<typename Option::replicate_key, Options>} + ... + 0) == 1;
    else
      return true;
  }();
  static_assert(
      once,
      "ikebana: replicate_policy is given two options that say the same thing, such as two "
      "bucket_cap");
};

}  // namespace detail

/// The caps of the buckets in bytes, bucket by bucket, the last one standing for all that follow.
template <dim_t... Bytes>
struct bucket_caps {
  static_assert(sizeof...(Bytes) > 0 && ((Bytes > 0) && ...),
                "ikebana: bucket_caps expects one or more numbers of bytes above 0");
  using replicate_key = detail::bucket_caps_key;
  static constexpr std::array<dim_t, sizeof...(Bytes)> value{Bytes...};
};

/// One cap for all buckets, the first included: `bucket_cap<MiB(25)>`.
template <dim_t Bytes>
struct bucket_cap {
  static_assert(Bytes > 0, "ikebana: bucket_cap expects a number of bytes above 0");
  using replicate_key = detail::bucket_caps_key;
  static constexpr std::array<dim_t, 1> value{Bytes};
};

/// PyTorch's groups by size are buckets of at most, about, so many bytes.
template <dim_t Bytes>
using groups_by_bytes = bucket_cap<Bytes>;

/// What happens to a bucket between backward and the optimizer: `comm_hook<bf16_compress>`. A hook
/// with options of run time is given to `replicate` as an object of this type.
template <class Hook>
struct comm_hook {
  using replicate_key = detail::comm_hook_key;
  using type = Hook;
};

/// Whether buffers (running statistics) are taken from rank 0 at the end of every synchronised
/// backward, once for each: so all ranks hold the same state between steps, and a rank may evaluate
/// alone. (DistributedDataParallel does it in the forward that follows, also in that of an
/// evaluation.) `buffer_comm_hook` puts another operation in its place.
template <bool Value>
struct broadcast_buffers {
  using replicate_key = detail::broadcast_buffers_key;
  static constexpr bool value = Value;
};

/// Whether parameters and buffers are taken from rank 0 when a model is replicated. That their
/// paths, types and shapes are the same on all ranks is checked in any case.
template <bool Value>
struct init_sync {
  using replicate_key = detail::init_sync_key;
  static constexpr bool value = Value;
};

/// By what the sum of the gradients over the ranks is divided, in place of the number of ranks:
/// Numerator / Denominator. What averages by itself, as most hooks do, is scaled accordingly; a
/// hook whose result is local is left alone.
template <dim_t Numerator, dim_t Denominator = 1>
struct gradient_divide_factor {
  static_assert(Numerator >= 0 && Denominator > 0,
                "ikebana: gradient_divide_factor expects a number above 0");
  using replicate_key = detail::divide_factor_key;
  static constexpr double value = static_cast<double>(Numerator) / static_cast<double>(Denominator);
};

/// Whether backward reduces gradients before `set_requires_gradient_sync` says otherwise.
template <bool Value>
struct requires_gradient_sync {
  using replicate_key = detail::gradient_sync_key;
  static constexpr bool value = Value;
};

/// How a model is replicated: options as types, in any order, each at most once.
/// `replicate_policy<bucket_cap<MiB(25)>, comm_hook<bf16_compress>>`
template <class... Options>
class replicate_policy {
  // Only so that each check is instantiated: the sentences are there.
  static_assert(((sizeof(detail::check_replicate_option<Options, Options...>) > 0) && ...));

 public:
  /// The option that answers the question Key, or Default where none does.
  template <class Key, class Default>
  using option = typename detail::find_option<Key, Default, Options...>::type;

  /// The objects of those options that take part in steps: see feature.hpp.
  template <class Model, class Group>
  using features = decltype(std::tuple_cat(
      std::declval<typename detail::feature_of<Options, Model, Group>::type>()...));

  /// Its override_at, as a std::tuple.
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

/// What a policy says to the question Key: the option's type, or Default where it says nothing.
template <class Policy, class Key, class Default = void>
using policy_option = typename Policy::template option<Key, Default>;

/// Whether a policy says anything to the question Key.
template <class Policy, class Key>
inline constexpr bool policy_has = !std::is_void_v<policy_option<Policy, Key>>;

template <class P>
inline constexpr bool is_replicate_policy = false;
template <class... Options>
inline constexpr bool is_replicate_policy<replicate_policy<Options...>> = true;

}  // namespace ikebana
