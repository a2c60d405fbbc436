#pragma once

#include <boost/hana/string.hpp>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/text.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

/// A child with a name: `"fc1"_m = linear<784, 10>{}`. Name is a boost::hana::string.
template <class Name, class M>
struct named {
  using name_type = Name;
  using module_type = M;
  M module{};

  /// In a graph, applies the module to values under its name: one that is used several times is
  /// written once, `auto encode = "encoder"_m = linear<8, 4>{}; encode(a) - encode(b)`.
  template <class... Symbol>
  requires(sizeof...(Symbol) > 0) constexpr auto operator()(const Symbol&... x) const {
    return apply(*this, x...);
  }
};

namespace detail {

template <std::size_t N>
struct literal {
  char data[N]{};
  constexpr literal(const char (&s)[N]) {
    for (std::size_t i = 0; i < N; ++i) data[i] = s[i];
  }
  static constexpr std::size_t size() { return N - 1; }
};

template <literal L, std::size_t... I>
constexpr auto to_hana_string(std::index_sequence<I...>) {
  return boost::hana::string<L.data[I]...>{};
}

template <literal L>
using hana_string_t = decltype(to_hana_string<L>(std::make_index_sequence<L.size()>{}));

constexpr bool is_valid_name(const char* s) {
  if (*s == '\0') return false;
  for (; *s != '\0'; ++s)
    if (*s == '.') return false;
  return true;
}

namespace misuse {
IKEBANA_MISUSE(a_composition_takes_modules,
               "a composition takes modules, such as linear<784, 10>{} or relu{}, got a number, a "
               "string or a pointer");
}  // namespace misuse

/// Stands for the sizes of a refused module and for the children of a refused composition.
template <class Misuse>
struct no_module;
template <bool Lazy>
using refused_child = no_module<misuse::a_composition_takes_modules<Lazy>>;

/// Whether one of these can be neither a module nor a named one.
template <class... C>
inline constexpr bool have_no_module = !(std::is_class_v<C> && ...);

template <class X>
inline constexpr bool is_tuple = requires {
  std::tuple_size<X>::value;
};

/// The type of `"name"_m`.
template <class Name>
struct name_literal {
  static_assert(is_valid_name(Name::c_str()),
                "ikebana: the name of a module is not empty and has no dot");

  template <class M>
  requires(!have_no_module<M>) constexpr named<Name, M> operator=(M module) const {
    return {std::move(module)};
  }
  template <class M>
  requires(have_no_module<M>) auto operator=(M) const
      -> decltype(refuse_for<misuse::a_composition_takes_modules, M>());

  /// Applies a module, under this name, to symbols of a graph.
  template <class M, class... Symbol>
  constexpr auto operator()(M module, Symbol... x) const {
    constexpr bool are_values = !(is_tuple<Symbol> || ...);
    static_assert(
        are_values,
        "ikebana: in a graph, a module that gives several values gives a std::tuple: auto "
        "[y, h, c] = \"lstm\"_m(lstm<4, 8>{}, x); the next one takes y");
    // Of a tuple, argument-dependent lookup would find std::apply.
    if constexpr (are_values)
      return apply(named<Name, M>{std::move(module)}, x...);
    else
      return std::get<0>(std::tuple{x...});
  }
};

template <class C>
struct unwrap_named : std::type_identity<C> {};
template <class Name, class M>
struct unwrap_named<named<Name, M>> : std::type_identity<M> {};

template <class C>
inline constexpr bool is_named = false;
template <class Name, class M>
inline constexpr bool is_named<named<Name, M>> = true;

/// The module of a child, named or not.
template <class C>
constexpr const C& module_of(const C& child) {
  return child;
}
template <class Name, class M>
constexpr const M& module_of(const named<Name, M>& child) {
  return child.module;
}
template <class Name, class M>
constexpr M& module_of(named<Name, M>& child) {
  return child.module;
}
template <class C>
constexpr C& module_of(C& child) {
  return child;
}

/// The name of a child, or null if it is named by its index.
template <class C>
constexpr const char* name_of() {
  if constexpr (is_named<C>)
    return C::name_type::c_str();
  else
    return nullptr;
}

/// A child with the same name around another module.
template <class C, class M>
constexpr auto renamed(M module) {
  if constexpr (is_named<C>)
    return named<typename C::name_type, M>{std::move(module)};
  else
    return module;
}

}  // namespace detail

namespace literals {

/// Names a child of a network: `"fc1"_m = linear<784, 10>{}`.
template <detail::literal L>
constexpr auto operator""_m() {
  return detail::name_literal<detail::hana_string_t<L>>{};
}

/// A compile-time string (boost::hana::string): `model["fc1.weight"_s]`.
template <detail::literal L>
constexpr auto operator""_s() {
  return detail::hana_string_t<L>{};
}

}  // namespace literals
}  // namespace ikebana
