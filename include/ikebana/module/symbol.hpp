#pragma once

#include <boost/hana/append.hpp>
#include <boost/hana/at.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"

namespace ikebana {

namespace detail {

/// One application in a graph: a child (named or not) on values. Two applications of equal type are
/// one node: the same name, module and inputs.
template <class Child, int... Inputs>
struct application {
  using child_type = Child;
  static constexpr int inputs[sizeof...(Inputs) + 1] = {Inputs..., 0};
  static constexpr std::size_t arity = sizeof...(Inputs);
};

/// The applications that a symbol depends on, in an order in which they can run. Flat, so that a
/// value used many times does not multiply the type.
template <int GraphInputs, class... Applications>
struct trace {
  static constexpr int inputs = GraphInputs;
  static constexpr int size = sizeof...(Applications);
};

template <class A, int GraphInputs, class... Applications>
constexpr int index_in(const trace<GraphInputs, Applications...>*) {
  int i = 0;
  const bool found = ((std::is_same_v<A, Applications> ? true : (++i, false)) || ... || false);
  return found ? i : -1;
}

template <int I, class T>
struct indexed_type {
  using type = T;
};
template <class I, class... T>
struct indexed_types;
template <int... I, class... T>
struct indexed_types<std::integer_sequence<int, I...>, T...> : indexed_type<I, T>... {};
template <int I, class T>
indexed_type<I, T> pick(const indexed_type<I, T>&);

/// The I-th of T.
template <int I, class... T>
using nth = typename decltype(pick<I>(
    std::declval<indexed_types<std::make_integer_sequence<int, sizeof...(T)>, T...>>()))::type;

}  // namespace detail

/// A value of a graph before there are numbers: which applications made it (Trace), and which of
/// the values it is. Holds the modules' options. The argument of the function given to `graph`.
template <class Trace, int Id, class Children>
struct symbol {
  using trace_type = Trace;
  static constexpr int id = Id;
  Children children{};
};

namespace detail {

template <class X>
inline constexpr bool is_symbol = false;
template <class Trace, int Id, class Children>
inline constexpr bool is_symbol<symbol<Trace, Id, Children>> = true;

/// A trace under construction, with where the values of another trace went in it.
template <class Trace, class Children, int... Map>
struct merged {
  Children children;
  static constexpr int map[sizeof...(Map) + 1] = {Map..., 0};
};

template <int... I>
struct int_list {};

template <class Child, int GraphInputs, class... A, class Children, class Module, int... In>
constexpr auto add_application(const trace<GraphInputs, A...>* t, const Children& children,
                               const Module& child, int_list<In...>) {
  using added = application<Child, In...>;
  constexpr int found = index_in<added>(static_cast<const trace<GraphInputs, A...>*>(nullptr));
  (void)t;
  if constexpr (found >= 0)
    return symbol<trace<GraphInputs, A...>, GraphInputs + found, Children>{children};
  else {
    auto more = boost::hana::append(children, child);
    return symbol<trace<GraphInputs, A..., added>, GraphInputs + static_cast<int>(sizeof...(A)),
                  decltype(more)>{more};
  }
}

/// Adds the applications of trace B, from the K-th on, to the symbol s; Map says where B's values
/// are in s's trace.
template <int K, int... Map, class Symbol, int GraphInputs, class... B, class BChildren>
constexpr auto merge_from(const Symbol& s, const trace<GraphInputs, B...>* b,
                          const BChildren& b_children, int_list<Map...>) {
  if constexpr (K == static_cast<int>(sizeof...(B))) {
    return merged<typename Symbol::trace_type, decltype(s.children), Map...>{s.children};
  } else {
    using application_type = nth<K, B...>;
    constexpr int map[] = {Map..., 0};
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      const auto next = add_application<typename application_type::child_type>(
          static_cast<const typename Symbol::trace_type*>(nullptr), s.children,
          boost::hana::at_c<K>(b_children), int_list<map[application_type::inputs[I]]...>{});
      return merge_from<K + 1>(next, b, b_children,
                               int_list<Map..., std::remove_cvref_t<decltype(next)>::id>{});
    }
    (std::make_index_sequence<application_type::arity>{});
  }
}

template <int GraphInputs>
constexpr auto identity_map() {
  return []<int... I>(std::integer_sequence<int, I...>) { return int_list<I...>{}; }
  (std::make_integer_sequence<int, GraphInputs>{});
}

template <class Trace, class Children>
struct trace_state {
  Children children;
};

template <class Child, class Trace, class Children, int... Ids>
constexpr auto apply_merged(const Child& child, const trace_state<Trace, Children>& state,
                            int_list<Ids...> ids) {
  return add_application<Child>(static_cast<const Trace*>(nullptr), state.children, child, ids);
}

template <class Child, class Trace, class Children, int... Ids, class First, class... Rest>
constexpr auto apply_merged(const Child& child, const trace_state<Trace, Children>& state,
                            int_list<Ids...>, const First& first, const Rest&... rest) {
  using first_trace = typename First::trace_type;
  if constexpr (std::is_same_v<Trace, first_trace>) {
    return apply_merged(child, state, int_list<Ids..., First::id>{}, rest...);
  } else {
    const auto m = merge_from<0>(symbol<Trace, 0, Children>{state.children},
                                 static_cast<const first_trace*>(nullptr), first.children,
                                 identity_map<Trace::inputs>());
    return [&]<class T, class C, int... Map>(const merged<T, C, Map...>& merged_trace) {
      constexpr int map[] = {Map..., 0};
      return apply_merged(child, trace_state<T, std::remove_cvref_t<C>>{merged_trace.children},
                          int_list<Ids..., map[First::id]>{}, rest...);
    }(m);
  }
}

template <class C>
inline constexpr bool has_state = [] {
  using M = typename unwrap_named<C>::type;
  if constexpr (composite_module<M>)
    return true;
  else if constexpr (requires { M::is_random; })
    return true;
  else
    return parameter_count<M>() + buffer_count<M>() > 0 || requires { M::is_lazy; };
}();

}  // namespace detail

/// A value of a graph.
template <class X>
concept symbolic = detail::is_symbol<std::remove_cvref_t<X>>;

/// The application of a module to values of a graph; the result is another value. The same module
/// under the same name on the same values is one node; a module that has parameters or draws random
/// numbers must be named.
template <class Child, symbolic First, symbolic... Rest>
constexpr auto apply(const Child& child, const First& first, const Rest&... rest) {
  static_assert(detail::is_named<Child> || !detail::has_state<Child>,
                "ikebana: in a graph, a module with parameters or randomness needs a name: "
                "\"fc1\"_m(linear<..>{}, x)");
  using state = detail::trace_state<typename First::trace_type, decltype(first.children)>;
  return detail::apply_merged(child, state{first.children}, detail::int_list<First::id>{}, rest...);
}

}  // namespace ikebana
