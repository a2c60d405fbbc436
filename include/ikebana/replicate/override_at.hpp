#pragma once

#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "ikebana/module/named.hpp"
#include "ikebana/replicate/find_option.hpp"
#include "ikebana/replicate/utils/root_modules.hpp"

namespace ikebana {

namespace detail {

template <literal Path>
struct override_key {};

/// The options that override_at can override.
template <class Option>
inline constexpr bool is_overriding_option =
    answers<bucket_caps_key, Option> || answers<comm_hook_key, Option> ||
    answers<divide_factor_key, Option> || answers<gradient_sync_key, Option>;

}  // namespace detail

/// Other options for the gradients of one module and everything below it, which become a separate
/// group: `override_at<"head", comm_hook<bf16_compress>, bucket_cap<MiB(4)>>`. Options that it does
/// not contain are the policy's; of nested modules, the innermost one that contains an option
/// counts. A hook is a separate, default-constructed object: `replica.hook("head"_s)`.
template <detail::literal Path, class... Options>
struct override_at {
  static_assert(sizeof...(Options) > 0, "ikebana: override_at expects a path and options");
  using replicate_key = detail::override_key<Path>;

  static constexpr std::string_view path{Path.data, Path.size()};

  template <class Key>
  static constexpr bool says = (detail::answers<Key, Options> || ...);
  template <class Key, class Default>
  using option_of = detail::find_option<Key, Default, Options...>;
};

namespace detail {

template <class Option>
struct override_of : std::type_identity<std::tuple<>> {};
template <literal Path, class... Options>
struct override_of<override_at<Path, Options...>>
    : std::type_identity<std::tuple<override_at<Path, Options...>>> {};

/// Whether Option is not an override_at with an option that it cannot override.
template <class Option>
inline constexpr bool overrides_well = true;
template <literal Path, class... Options>
inline constexpr bool overrides_well<override_at<Path, Options...>> =
    (is_overriding_option<Options> && ...);

/// The index of the override, in a std::tuple, that has an option for Key and this path: the
/// innermost at or above it; -1 if there is none.
template <class Key, class... Overrides>
constexpr int find_override(std::tuple<Overrides...>*, std::string_view path) {
  int best = -1, i = 0;
  std::size_t length = 0;
  [[maybe_unused]] const auto look = [&]<class O>(std::type_identity<O>) {
    if (O::template says<Key> && is_at_or_below(path, O::path) &&
        (best < 0 || O::path.size() > length)) {
      best = i;
      length = O::path.size();
    }
    ++i;
  };
  (look(std::type_identity<Overrides>{}), ...);
  return best;
}

}  // namespace detail
}  // namespace ikebana
