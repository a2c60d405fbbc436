#pragma once

#include <array>
#include <boost/hana/at.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/tensor.hpp"
#include "ikebana/replicate/utils/holds_tensors.hpp"

namespace ikebana {

namespace detail {

/// How a container of X stores the mapped values: references stay references, everything else is
/// stored by value.
template <class X, class Mapped>
using held_as = std::conditional_t<std::is_reference_v<X> && std::is_lvalue_reference_v<Mapped>,
                                   Mapped, std::remove_cvref_t<Mapped>>;

/// The elements of an rvalue are rvalues, except references.
template <class X, class Element>
using forwarded_element =
    std::conditional_t<std::is_lvalue_reference_v<X>, const Element&, Element&&>;

template <class F, class X>
constexpr decltype(auto) map_value(F& f, X&& x);

template <class F, class X>
using mapped_t = decltype(map_value(std::declval<F&>(), std::declval<X>()));

/// The mapped type of an X in a container, passed as an X&& or, from an lvalue, as `Given`.
template <class F, class X, class Given>
struct mapped_element {
  using type = held_as<X, mapped_t<F, Given>>;
};
template <class F, class X, class Given>
requires(!holds_tensors<X>::value) struct mapped_element<F, X, Given> {
  using type = X;
};
template <class F, class X, class Given>
using mapped_element_t = typename mapped_element<F, X, Given>::type;

template <class>
inline constexpr bool no_rule_for = false;

/// The rule for one kind of container; the primary template is for ranges that cannot be rebuilt.
template <class X>
struct tensor_map {
  static_assert(no_rule_for<X>,
                "ikebana: map_tensors cannot rebuild this container: it knows std::tuple, pair, "
                "array, vector, deque, list, map, unordered_map, optional, variant, hana::tuple "
                "and structs adapted with Boost.Hana");
  template <class F, class Given>
  static void apply(F&, Given&&) {}
};

template <class... T>
struct tensor_map<std::tuple<T...>> {
  template <class F, class Given>
  static constexpr auto apply(F& f, Given&& x) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      // In braces, so that tensors are visited in order.
      return std::tuple<mapped_element_t<F, T, decltype(std::get<I>(std::forward<Given>(x)))>...>{
          map_value(f, std::get<I>(std::forward<Given>(x)))...};
    }
    (std::index_sequence_for<T...>{});
  }
};
template <class... T>
struct tensor_map<boost::hana::tuple<T...>> {
  template <class F, class Given>
  static constexpr auto apply(F& f, Given&& x) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return boost::hana::tuple<
          mapped_element_t<F, T, decltype(boost::hana::at_c<I>(std::forward<Given>(x)))>...>{
          map_value(f, boost::hana::at_c<I>(std::forward<Given>(x)))...};
    }
    (std::index_sequence_for<T...>{});
  }
};
template <class A, class B>
struct tensor_map<std::pair<A, B>> {
  template <class F, class Given>
  static constexpr auto apply(F& f, Given&& x) {
    using a = mapped_element_t<F, A, decltype(std::get<0>(std::forward<Given>(x)))>;
    using b = mapped_element_t<F, B, decltype(std::get<1>(std::forward<Given>(x)))>;
    return std::pair<a, b>{map_value(f, std::get<0>(std::forward<Given>(x))),
                           map_value(f, std::get<1>(std::forward<Given>(x)))};
  }
};
template <class T, std::size_t N>
struct tensor_map<std::array<T, N>> {
  template <class F, class Given>
  static constexpr auto apply(F& f, Given&& x) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      using element = mapped_element_t<F, T, forwarded_element<Given, T>>;
      return std::array<element, N>{map_value(f, std::get<I>(std::forward<Given>(x)))...};
    }
    (std::make_index_sequence<N>{});
  }
};

/// vector, deque, list: containers with push_back.
template <template <class...> class C, class T, class Allocator>
requires(requires(C<T, Allocator>& c, T& t) {
  c.push_back(std::move(t));
}) struct tensor_map<C<T, Allocator>> {
  template <class F, class Given>
  static constexpr auto apply(F& f, Given&& x) {
    using element = mapped_element_t<F, T, forwarded_element<Given, T>>;
    using rebound = typename std::allocator_traits<Allocator>::template rebind_alloc<element>;
    C<element, rebound> out(rebound(x.get_allocator()));
    if constexpr (requires { out.reserve(x.size()); }) out.reserve(x.size());
    for (auto&& e : x) out.push_back(map_value(f, static_cast<forwarded_element<Given, T>>(e)));
    return out;
  }
};

template <class Map, class Out, class F, class Given>
constexpr Out map_values(Out out, F& f, Given&& x) {
  for (auto&& [key, value] : x)
    out.emplace_hint(
        out.end(), key,
        map_value(f, static_cast<forwarded_element<Given, typename Map::mapped_type>>(value)));
  return out;
}

/// map and multimap: keys are kept.
template <template <class...> class C, class K, class V, class Less, class Allocator>
requires(ordered_map_like<C<K, V, Less, Allocator>>) struct tensor_map<C<K, V, Less, Allocator>> {
  template <class F, class Given>
  static constexpr auto apply(F& f, Given&& x) {
    using value = mapped_element_t<F, V, forwarded_element<Given, V>>;
    using rebound =
        typename std::allocator_traits<Allocator>::template rebind_alloc<std::pair<const K, value>>;
    using out = C<K, value, Less, rebound>;
    return map_values<C<K, V, Less, Allocator>>(out(x.key_comp(), rebound(x.get_allocator())), f,
                                                std::forward<Given>(x));
  }
};

/// unordered_map and unordered_multimap.
template <template <class...> class C, class K, class V, class Hash, class Equal, class Allocator>
requires(hashed_map_like<C<K, V, Hash, Equal, Allocator>>) struct tensor_map<
    C<K, V, Hash, Equal, Allocator>> {
  template <class F, class Given>
  static constexpr auto apply(F& f, Given&& x) {
    using value = mapped_element_t<F, V, forwarded_element<Given, V>>;
    using rebound =
        typename std::allocator_traits<Allocator>::template rebind_alloc<std::pair<const K, value>>;
    using out = C<K, value, Hash, Equal, rebound>;
    return map_values<C<K, V, Hash, Equal, Allocator>>(
        out(x.bucket_count(), x.hash_function(), x.key_eq(), rebound(x.get_allocator())), f,
        std::forward<Given>(x));
  }
};

template <template <class...> class C, class T>
requires(optional_like<C<T>>) struct tensor_map<C<T>> {
  template <class F, class Given>
  static constexpr auto apply(F& f, Given&& x) {
    using out = C<mapped_element_t<F, T, forwarded_element<Given, T>>>;
    return x.has_value() ? out(map_value(f, *std::forward<Given>(x))) : out();
  }
};

template <class Out, std::size_t I, class F, class Given>
constexpr Out map_alternative(F& f, Given&& x) {
  if constexpr (I > 0)
    if (x.index() != I) return map_alternative<Out, I - 1>(f, std::forward<Given>(x));
  // For a variant without a value, this throws std::bad_variant_access.
  return Out(std::in_place_index<I>, map_value(f, get<I>(std::forward<Given>(x))));
}

template <template <class...> class C, class... T>
requires(variant_like<C<T...>>) struct tensor_map<C<T...>> {
  template <class F, class Given>
  static constexpr auto apply(F& f, Given&& x) {
    return map_alternative<C<mapped_element_t<F, T, forwarded_element<Given, T>>...>,
                           sizeof...(T) - 1>(f, std::forward<Given>(x));
  }
};

template <hana_struct S>
struct tensor_map<S> {
  template <class F, std::size_t I, class Given>
  static constexpr bool assigns() {
    using type = decltype(member<I>(std::declval<S&>()));
    if constexpr (!holds_tensors<type>::value)
      return true;
    else
      return std::is_assignable_v<type, mapped_t<F, decltype(member<I>(std::declval<Given>()))>>;
  }

  template <class F, class Given>
  static constexpr S apply(F& f, Given&& x) {
    return [&]<std::size_t... I>(std::index_sequence<I...>)->S {
      if constexpr ((assigns<F, I, Given>() && ...)) {
        // Copied, or moved from the argument: members that are not adapted are kept.
        S out(std::forward<Given>(x));
        (assign<I>(f, out), ...);
        return out;
      } else {
        // A const member (of an immutable struct) is initialised once.
        constexpr bool made_of = requires {
          S{map_value(f, member<I>(std::forward<Given>(x)))...};
        };
        static_assert(made_of,
                      "ikebana: map_tensors keeps the type of a struct: what the function returns "
                      "must be what its members can hold");
        if constexpr (made_of) return S{map_value(f, member<I>(std::forward<Given>(x)))...};
      }
    }
    (std::make_index_sequence<member_count<S>>{});
  }

 private:
  template <std::size_t I, class F>
  static constexpr void assign(F& f, S& out) {
    if constexpr (holds_tensors<decltype(member<I>(out))>::value)
      member<I>(out) = map_value(f, std::move(member<I>(out)));
  }
};

template <class F, class X>
constexpr decltype(auto) map_value(F& f, X&& x) {
  using plain = std::remove_cvref_t<X>;
  if constexpr (tensor_like<plain>)
    return f(std::forward<X>(x));
  else if constexpr (holds_tensors<plain>::value)
    return tensor_map<plain>::apply(f, std::forward<X>(x));
  else
    return std::forward<X>(x);
}

}  // namespace detail

/// Replaces every tensor and view in x by f(tensor), at any depth of std::tuple, pair, array,
/// vector, deque, list, map, unordered_map (the values), optional, variant, hana::tuple and structs
/// adapted with Boost.Hana (BOOST_HANA_DEFINE_STRUCT); their kinds, keys, order and comparators are
/// kept. f runs once per tensor, in order, with an rvalue if x is one. Parts without tensors are
/// copied from an lvalue and moved from an rvalue; if x contains no tensor, it is returned as it
/// is.
///
/// f may return another type than it takes if the container can hold it; a struct keeps its
/// members' types. Types that are not adapted are not searched; a container of tensors that cannot
/// be rebuilt (std::span, std::set) does not compile. Throws std::bad_variant_access for a variant
/// without a value, and whatever f throws. Allocates as the containers do.
template <class F, class X>
constexpr auto map_tensors(F&& f, X&& x)
    -> std::conditional_t<holds_tensors<X>, detail::held_as<X&&, detail::mapped_t<F, X>>, X> {
  return detail::map_value(f, std::forward<X>(x));
}

}  // namespace ikebana
