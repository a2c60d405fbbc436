#pragma once

#include <boost/hana/accessors.hpp>
#include <boost/hana/at.hpp>
#include <boost/hana/concept/struct.hpp>
#include <boost/hana/length.hpp>
#include <boost/hana/second.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/tensor.hpp"

namespace ikebana {

namespace detail {

template <class X>
concept range_of_values = requires(X& x) {
  typename X::value_type;
  x.begin();
  x.end();
};
template <class X>
concept map_like = range_of_values<X> && requires {
  typename X::key_type;
  typename X::mapped_type;
};
template <class X>
concept ordered_map_like = map_like<X> && requires(const X& x) {
  x.key_comp();
};
template <class X>
concept hashed_map_like = map_like<X> && requires(const X& x) {
  x.hash_function();
};
template <class X>
concept optional_like = requires(X& x) {
  typename X::value_type;
  x.has_value();
  x.reset();
  *x;
};
template <class X>
concept variant_like = requires(X& x) {
  x.index();
  x.valueless_by_exception();
};
template <class X>
concept hana_struct = boost::hana::Struct<X>::value;

template <class S>
inline constexpr std::size_t member_count =
    decltype(boost::hana::length(boost::hana::accessors<S>()))::value;

/// Member I of an adapted struct.
template <std::size_t I, class S>
constexpr decltype(auto) member(S&& s) {
  using plain = std::remove_cvref_t<S>;
  return boost::hana::second(boost::hana::at_c<I>(boost::hana::accessors<plain>()))(
      std::forward<S>(s));
}

template <class Leaf, class X>
struct holds;

/// Whether a container contains a tensor that Leaf asks for, determined by the shape of its
/// template: standard containers need not be included here.
template <class Leaf, class X>
struct held : std::false_type {};
template <class Leaf, range_of_values X>
struct held<Leaf, X> : holds<Leaf, typename X::value_type> {};
template <class Leaf, map_like X>
struct held<Leaf, X> : holds<Leaf, typename X::mapped_type> {};
template <class Leaf, template <class...> class C, class... T>
requires(variant_like<C<T...>> || optional_like<C<T...>>) struct held<Leaf, C<T...>>
    : std::bool_constant<(holds<Leaf, T>::value || ...)> {
};
template <class Leaf, class... T>
struct held<Leaf, std::tuple<T...>> : std::bool_constant<(holds<Leaf, T>::value || ...)> {};
template <class Leaf, class... T>
struct held<Leaf, boost::hana::tuple<T...>> : held<Leaf, std::tuple<T...>> {};
template <class Leaf, class A, class B>
struct held<Leaf, std::pair<A, B>> : held<Leaf, std::tuple<A, B>> {};
template <class Leaf, hana_struct S>
struct held<Leaf, S> {
  static constexpr bool value = []<std::size_t... I>(std::index_sequence<I...>) {
    return (holds<Leaf, decltype(member<I>(std::declval<S&>()))>::value || ...);
  }
  (std::make_index_sequence<member_count<S>>{});
};

/// Whether X is a tensor that Leaf asks for, or contains one at any depth.
template <class Leaf, class X>
struct holds : std::bool_constant<Leaf::template asks<std::remove_cvref_t<X>> ||
                                  held<Leaf, std::remove_cvref_t<X>>::value> {};

struct any_tensor {
  template <class X>
  static constexpr bool asks = tensor_like<X>;
};
template <class X>
using holds_tensors = holds<any_tensor, X>;

}  // namespace detail

/// Whether X contains a tensor at any depth: whether map_tensors would visit anything.
template <class X>
inline constexpr bool holds_tensors = detail::holds_tensors<X>::value;

}  // namespace ikebana
