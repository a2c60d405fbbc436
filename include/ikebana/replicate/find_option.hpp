#pragma once

#include <type_traits>

#include "ikebana/core/language.hpp"

namespace ikebana::detail {

// Keys of options. Two options with the same key contradict each other.
struct bucket_caps_key {};
struct comm_hook_key {};
struct broadcast_buffers_key {};
struct init_sync_key {};
struct divide_factor_key {};
struct gradient_sync_key {};
struct mixed_precision_key {};

template <class Key, class Option>
inline constexpr bool answers = requires {
  requires std::is_same_v<typename Option::replicate_key, Key>;
};

/// The option with this key, or a default.
template <class Key, class Default, class... Options>
struct find_option {
  using type = Default;
};
template <class Key, class Default, class First, class... Rest>
struct find_option<Key, Default, First, Rest...>
    : std::conditional_t<answers<Key, First>, std::type_identity<First>,
                         find_option<Key, Default, Rest...>> {};

}  // namespace ikebana::detail
