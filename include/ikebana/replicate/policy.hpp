#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/replicate/buckets.hpp"
#include "ikebana/replicate/comm_hook.hpp"
#include "ikebana/replicate/compress.hpp"

namespace ikebana {

namespace detail {

// The questions that options answer. Two options with the same key contradict each other.
struct bucket_caps_key {};
struct comm_hook_key {};
struct broadcast_buffers_key {};
struct init_sync_key {};

template <class Key, class Option>
inline constexpr bool answers = requires {
  requires std::is_same_v<typename Option::replicate_key, Key>;
};

template <class Key, class Default, class... Options>
struct find_option {
  using type = Default;
};
template <class Key, class Default, class First, class... Rest>
struct find_option<Key, Default, First, Rest...>
    : std::conditional_t<answers<Key, First>, std::type_identity<First>,
                         find_option<Key, Default, Rest...>> {};

/// Instantiated for each option, so that the compiler names the one that is wrong.
template <class Option, class... Options>
struct check_replicate_option {
  static constexpr bool known = requires { typename Option::replicate_key; };
  static_assert(known,
                "ikebana: replicate_policy takes bucket_cap, bucket_caps, comm_hook, "
                "broadcast_buffers and init_sync; this type is none of them");

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

/// What happens to a bucket between backward and the optimizer: `comm_hook<bf16_compress>`. A hook
/// with options of run time is given to `replicate` as an object of this type.
template <class Hook>
struct comm_hook {
  using replicate_key = detail::comm_hook_key;
  using type = Hook;
};

/// Whether buffers (running statistics) are taken from rank 0 at the end of every synchronised
/// backward: so all ranks hold the same state between steps.
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

/// How a model is replicated: options as types, in any order, each at most once.
/// `replicate_policy<bucket_cap<MiB(25)>, comm_hook<bf16_compress>>`
template <class... Options>
class replicate_policy {
  // Only so that each check is instantiated: the sentences are there.
  static_assert(((sizeof(detail::check_replicate_option<Options, Options...>) > 0) && ...));

  template <class Key, class Default>
  using option = typename detail::find_option<Key, Default, Options...>::type;

 public:
  /// The caps of the buckets in bytes, for `plan_buckets`.
  static constexpr auto caps =
      option<detail::bucket_caps_key,
             bucket_caps<default_bucket_caps[0], default_bucket_caps[1]>>::value;
  using hook_type =
      typename option<detail::comm_hook_key, ikebana::comm_hook<all_reduce_hook>>::type;
  static constexpr bool broadcasts_buffers =
      option<detail::broadcast_buffers_key, ikebana::broadcast_buffers<true>>::value;
  static constexpr bool syncs_at_start =
      option<detail::init_sync_key, ikebana::init_sync<true>>::value;
};

template <class P>
inline constexpr bool is_replicate_policy = false;
template <class... Options>
inline constexpr bool is_replicate_policy<replicate_policy<Options...>> = true;

}  // namespace ikebana
