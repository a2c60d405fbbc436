#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "ikebana/core/shape.hpp"

namespace ikebana {

namespace detail {
struct kernel_option;
struct stride_option;
struct padding_option;
struct dilation_option;
struct groups_option;
struct bias_option;
struct dim_option;
struct ceil_mode_option;
struct count_include_pad_option;
struct divisor_override_option;
struct affine_option;
struct track_running_stats_option;
}  // namespace detail

// Options of modules are types, given in any order. Those with a value for each spatial dimension
// take one number for all of them or one for each: kernel<3>, kernel<3, 5>.

template <dim_t... N>
struct kernel {
  using option = detail::kernel_option;
  static constexpr std::array<dim_t, sizeof...(N)> values{N...};
};

template <dim_t... N>
struct stride {
  using option = detail::stride_option;
  static constexpr std::array<dim_t, sizeof...(N)> values{N...};
};

template <dim_t... N>
struct padding {
  using option = detail::padding_option;
  static constexpr std::array<dim_t, sizeof...(N)> values{N...};
};

template <dim_t... N>
struct dilation {
  using option = detail::dilation_option;
  static constexpr std::array<dim_t, sizeof...(N)> values{N...};
};

template <dim_t N>
struct groups {
  using option = detail::groups_option;
  static constexpr dim_t value = N;
};

template <bool B>
struct bias {
  using option = detail::bias_option;
  static constexpr bool value = B;
};

/// The dimension a module works along; negative counts from the end.
template <dim_t N>
struct dim {
  using option = detail::dim_option;
  static constexpr dim_t value = N;
};

/// Whether a pooling window may start inside the input and reach beyond its padded end.
template <bool B>
struct ceil_mode {
  using option = detail::ceil_mode_option;
  static constexpr bool value = B;
};

template <bool B>
struct count_include_pad {
  using option = detail::count_include_pad_option;
  static constexpr bool value = B;
};

template <dim_t N>
struct divisor_override {
  using option = detail::divisor_override_option;
  static constexpr dim_t value = N;
};

template <bool B>
struct affine {
  using option = detail::affine_option;
  static constexpr bool value = B;
};

template <bool B>
struct track_running_stats {
  using option = detail::track_running_stats_option;
  static constexpr bool value = B;
};

namespace detail {

/// Whether the type Option is an option of the kind Tag; false for what is no option at all.
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

/// How many of Options are of the kind of one of Allowed.
template <class Option, class... Allowed>
inline constexpr bool is_one_of = (is_option_of<Option, typename Allowed::option> || ...);

template <class Tag, class... Given>
inline constexpr int times_given = (int{is_option_of<Given, Tag>} + ... + 0);

template <class... Options>
struct option_set {
  /// Whether each of Given is of the kind of one of Options, and no kind is given twice.
  template <class... Given>
  static constexpr bool accepts = (is_one_of<Given, Options...> && ...) &&
                                  ((times_given<typename Options::option, Given...> <= 1) && ...);
};

/// One value for each of N spatial dimensions, from an option with one value or N.
template <std::size_t N, class Option>
constexpr std::array<dim_t, N> spatial() {
  static_assert(Option::values.size() == 1 || Option::values.size() == N,
                "ikebana: an option takes one value, or one for each spatial dimension");
  std::array<dim_t, N> out{};
  for (std::size_t i = 0; i < N; ++i) out[i] = Option::values[Option::values.size() == 1 ? 0 : i];
  return out;
}

}  // namespace detail
}  // namespace ikebana
