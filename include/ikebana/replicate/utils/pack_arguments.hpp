#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

/// Names of arguments as a type; each is a boost::hana::string.
template <class... Name>
struct argument_names {
  static constexpr std::array<std::string_view, sizeof...(Name)> value{
      std::string_view{Name::c_str()}...};
  static constexpr std::size_t size() { return sizeof...(Name); }
};

/// `names_of_arguments<"source", "mask">`: names for unpack_arguments.
template <detail::literal... Names>
inline constexpr argument_names<detail::hana_string_t<Names>...> names_of_arguments{};

/// The arguments of a call: the values in order, unnamed ones first, and the names of the last
/// ones.
template <class Values, class Names>
struct packed_arguments {
  Values values;
  static constexpr Names names{};
};

namespace detail {

template <class A>
inline constexpr bool is_named_argument = is_argument<std::remove_cvref_t<A>>;

/// The names of the arguments A, in order.
template <class Names, class... A>
struct names_given : std::type_identity<Names> {};
template <class... Name, class A, class... Rest>
struct names_given<argument_names<Name...>, A, Rest...>
    : names_given<argument_names<Name...>, Rest...> {};
template <class... Name, class First, class X, class... Rest>
struct names_given<argument_names<Name...>, argument<First, X>, Rest...>
    : names_given<argument_names<Name..., First>, Rest...> {};

/// The value of an argument: an lvalue or a named one by reference, else moved.
template <class A>
constexpr decltype(auto) value_given(A&& a) {
  if constexpr (is_named_argument<A>)
    return (a.value);
  else
    return std::forward<A>(a);
}
template <class A>
using value_given_t =
    std::conditional_t<is_named_argument<A>, decltype(value_given(std::declval<A>())), A>;

template <class... A>
constexpr bool names_come_last() {
  const bool named[sizeof...(A) + 1]{is_named_argument<A>..., true};
  for (std::size_t i = 0; i < sizeof...(A); ++i)
    if (named[i] && !named[i + 1]) return false;
  return true;
}

template <class Names>
constexpr bool names_differ() {
  for (std::size_t i = 0; i < Names::size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (Names::value[i] == Names::value[j]) return false;
  return true;
}

template <std::size_t I, std::size_t Positional, class Names, class Value>
constexpr decltype(auto) give_name(const Value& value) {
  if constexpr (I < Positional) {
    return (value);
  } else {
    using name = std::tuple_element_t<I - Positional, Names>;
    return argument<name, Value>{value};
  }
}

template <std::size_t Values, std::size_t Names>
constexpr diagnostic refuse_names() {
  return {"unpack_arguments is given {got} names for {expected} values", static_cast<dim_t>(Values),
          static_cast<dim_t>(Names)};
}

}  // namespace detail

/// Splits a call into values and names: `pack_arguments(x, "mask"_arg = m)` has `values` (x, m) and
/// `names` ("mask"). Values of lvalues and of named arguments are references, those of rvalues are
/// moved in. Named arguments come last, and their names must differ.
template <class... A>
constexpr auto pack_arguments(A&&... a) {
  using names = typename detail::names_given<argument_names<>, std::remove_cvref_t<A>...>::type;
  constexpr bool last = detail::names_come_last<A...>();
  static_assert(
      last, "ikebana: pack_arguments expects the arguments without a name before those with one");
  constexpr bool differ = detail::names_differ<names>();
  static_assert(differ, "ikebana: pack_arguments is given one name twice");
  using values = std::tuple<detail::value_given_t<A>...>;
  return packed_arguments<values, names>{values(detail::value_given(std::forward<A>(a))...)};
}

/// The inverse: a tuple of the arguments of a call, the last values with the names, by reference.
/// `std::apply(model, unpack_arguments(values, names_of_arguments<"mask">))`. The values must
/// outlive the result. More names than values do not compile.
template <class... Value, class... Name>
requires(sizeof...(Name) <=
         sizeof...(Value)) constexpr auto unpack_arguments(const std::tuple<Value...>& values,
                                                           argument_names<Name...>) {
  constexpr std::size_t n = sizeof...(Value), k = sizeof...(Name);
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    using given = std::tuple<Name...>;
    return std::tuple<decltype(detail::give_name<I, n - k, given>(std::get<I>(values)))...>(
        detail::give_name<I, n - k, given>(std::get<I>(values))...);
  }
  (std::make_index_sequence<n>{});
}
template <class... Value, class... Name>
requires(sizeof...(Name) > sizeof...(Value)) auto unpack_arguments(const std::tuple<Value...>&,
                                                                   argument_names<Name...>)
    -> decltype(detail::refuse<detail::refuse_names<sizeof...(Value), sizeof...(Name)>>());
template <class... Value, class... Name>
requires(!(std::is_reference_v<Value> &&
           ...)) constexpr auto unpack_arguments(std::tuple<Value...>&&,
                                                 argument_names<Name...>) = delete;

template <class Values, class Names>
constexpr auto unpack_arguments(const packed_arguments<Values, Names>& packed) {
  return unpack_arguments(packed.values, Names{});
}

}  // namespace ikebana
