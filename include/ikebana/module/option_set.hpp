#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "ikebana/core/shape.hpp"

namespace ikebana::detail {

// Which options a module was given, and whether it accepts them.

/// Whether the type Option is an option of the kind Tag; false for types that are not options.
template <class Option, class Tag>
inline constexpr bool is_option_of = requires {
  requires std::is_same_v<typename Option::option, Tag>;
};

template <class Tag, class Default, class... Options>
struct select_option : std::type_identity<Default> {};
template <class Tag, class Default, class First, class... Rest>
struct select_option<Tag, Default, First, Rest...>
    : std::conditional_t<is_option_of<First, Tag>, std::type_identity<First>,
                         select_option<Tag, Default, Rest...>> {};

/// The option of Default's kind among Options, or Default.
template <class Default, class... Options>
using option_or = typename select_option<typename Default::option, Default, Options...>::type;

/// Whether Option is of the kind of one of Allowed.
template <class Option, class... Allowed>
inline constexpr bool is_one_of = (is_option_of<Option, typename Allowed::option> || ...);

template <class Tag, class... Given>
inline constexpr int times_given = (int{is_option_of<Given, Tag>} + ... + 0);

template <class... Options>
struct option_set {
  /// Whether each of Given is of the kind of one of Options, and no kind occurs twice.
  template <class... Given>
  static constexpr bool accepts = (is_one_of<Given, Options...> && ...) &&
                                  ((times_given<typename Options::option, Given...> <= 1) && ...);
};

/// Option in place of Given, if they are of one kind.
template <class Option, class Given>
using set_option = std::conditional_t<is_option_of<Given, typename Option::option>, Option, Given>;

/// One value for each of N spatial dimensions, from an option with one value or N values.
template <std::size_t N, class Option>
constexpr std::array<dim_t, N> spatial() {
  static_assert(Option::values.size() == 1 || Option::values.size() == N,
                "ikebana: an option takes one value, or one for each spatial dimension");
  std::array<dim_t, N> out{};
  for (std::size_t i = 0; i < N; ++i) out[i] = Option::values[Option::values.size() == 1 ? 0 : i];
  return out;
}

}  // namespace ikebana::detail
