#pragma once

#include <boost/hana/append.hpp>
#include <boost/hana/at.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"

namespace ikebana {

namespace detail {

/// One application in a graph: a child (named or not) applied to values. Applications of equal type
/// are one node: the same name, module and inputs.
template <class Child, int... Inputs>
struct application {
  using child_type = Child;
  static constexpr int inputs[sizeof...(Inputs) + 1] = {Inputs..., 0};
  static constexpr std::size_t arity = sizeof...(Inputs);
  static constexpr int outputs =
      static_cast<int>(output_count<typename unwrap_named<Child>::type>());
};

/// The applications that a symbol depends on, in topological order. Flat, so that using a value
/// many times does not multiply the type. Values are numbered: first the inputs of the graph, then
/// the outputs of each application.
template <int GraphInputs, class... Applications>
struct trace {
  static constexpr int inputs = GraphInputs;
  static constexpr int size = sizeof...(Applications);
  static constexpr int values = (GraphInputs + ... + Applications::outputs);
};

/// The first value of application A in a trace, or -1.
template <class A, int GraphInputs, class... Applications>
constexpr int value_of(const trace<GraphInputs, Applications...>*) {
  int v = GraphInputs;
  const bool found =
      ((std::is_same_v<A, Applications> ? true : (v += Applications::outputs, false)) || ... ||
       false);
  return found ? v : -1;
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

/// The I-th type of T.
template <int I, class... T>
using nth = typename decltype(pick<I>(
    std::declval<indexed_types<std::make_integer_sequence<int, sizeof...(T)>, T...>>()))::type;

}  // namespace detail

/// A symbolic value of a graph: the applications that it depends on (Trace) and its index among
/// their values. Holds the modules' options. The argument type of the function passed to `graph`.
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

/// A trace under construction, and where the values of another trace are in it.
template <class Trace, class Children, int... Map>
struct merged {
  Children children;
  static constexpr int map[sizeof...(Map) + 1] = {Map..., 0};
};

template <int... I>
struct int_list {};

/// A trace with an application added, unless it is already there; `value` is its first output.
template <class Trace, int Value, class Children>
struct extended {
  using trace_type = Trace;
  static constexpr int value = Value;
  Children children;
};

template <class Child, int GraphInputs, class... A, class Children, class Module, int... In>
constexpr auto add_application(const trace<GraphInputs, A...>* t, const Children& children,
                               const Module& child, int_list<In...>) {
  using old = trace<GraphInputs, A...>;
  using added = application<Child, In...>;
  constexpr int found = value_of<added>(static_cast<const old*>(nullptr));
  (void)t;
  if constexpr (found >= 0) {
    return extended<old, found, Children>{children};
  } else {
    auto more = boost::hana::append(children, child);
    return extended<trace<GraphInputs, A..., added>, old::values, decltype(more)>{more};
  }
}

/// Adds the applications of trace B, from the K-th on, to a trace; Map gives the indices of B's
/// values in it.
template <int K, class Trace, int... Map, class Children, int GraphInputs, class... B,
          class BChildren>
constexpr auto merge_from(const Children& children, const trace<GraphInputs, B...>* b,
                          const BChildren& b_children, int_list<Map...>) {
  if constexpr (K == static_cast<int>(sizeof...(B))) {
    return merged<Trace, Children, Map...>{children};
  } else {
    using application_type = nth<K, B...>;
    constexpr int map[] = {Map..., 0};
    return [&]<std::size_t... I, int... New>(std::index_sequence<I...>,
                                             std::integer_sequence<int, New...>) {
      const auto next = add_application<typename application_type::child_type>(
          static_cast<const Trace*>(nullptr), children, boost::hana::at_c<K>(b_children),
          int_list<map[application_type::inputs[I]]...>{});
      using next_type = std::remove_cvref_t<decltype(next)>;
      return merge_from<K + 1, typename next_type::trace_type>(
          next.children, b, b_children, int_list<Map..., (next_type::value + New)...>{});
    }
    (std::make_index_sequence<application_type::arity>{},
     std::make_integer_sequence<int, application_type::outputs>{});
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

/// A trace that contains those of several symbols, and the indices of their values in it.
template <class Trace, class Children, int... Ids>
struct joined_traces {
  using trace_type = Trace;
  using ids = int_list<Ids...>;
  Children children;
};

template <class Trace, class Children, int... Ids>
constexpr auto join(const trace_state<Trace, Children>& state, int_list<Ids...>) {
  return joined_traces<Trace, Children, Ids...>{state.children};
}

template <class Trace>
struct beginning;
template <int GraphInputs, class... A>
struct beginning<trace<GraphInputs, A...>> {
  template <class... Later>
  static std::true_type of(const trace<GraphInputs, A..., Later...>*);
  static std::false_type of(...);
};

/// Whether Longer extends Trace, and so contains all its values with the same numbers.
template <class Longer, class Trace>
inline constexpr bool continues =
    decltype(beginning<Trace>::of(static_cast<const Longer*>(nullptr)))::value;

template <class Trace, class Children, int... Ids, class First, class... Rest>
constexpr auto join(const trace_state<Trace, Children>& state, int_list<Ids...>, const First& first,
                    const Rest&... rest) {
  using first_trace = typename First::trace_type;
  if constexpr (continues<Trace, first_trace>) {
    return join(state, int_list<Ids..., First::id>{}, rest...);
  } else if constexpr (continues<first_trace, Trace>) {
    return join(
        trace_state<first_trace, std::remove_cvref_t<decltype(first.children)>>{first.children},
        int_list<Ids..., First::id>{}, rest...);
  } else {
    const auto m = merge_from<0, Trace>(state.children, static_cast<const first_trace*>(nullptr),
                                        first.children, identity_map<Trace::inputs>());
    return [&]<class T, class C, int... Map>(const merged<T, C, Map...>& merged_trace) {
      constexpr int map[] = {Map..., 0};
      return join(trace_state<T, std::remove_cvref_t<C>>{merged_trace.children},
                  int_list<Ids..., map[First::id]>{}, rest...);
    }(m);
  }
}

/// Joins the traces of several symbols into one.
template <class First, class... Rest>
constexpr auto join_symbols(const First& first, const Rest&... rest) {
  using state = trace_state<typename First::trace_type, decltype(first.children)>;
  return join(state{first.children}, int_list<First::id>{}, rest...);
}

/// The outputs of an application, as symbols.
template <class Trace, int First, class Children, int... I>
constexpr auto symbols_of(const Children& children, std::integer_sequence<int, I...>) {
  if constexpr (sizeof...(I) == 1)
    return symbol<Trace, First, Children>{children};
  else
    return std::tuple<symbol<Trace, First + I, Children>...>{
        symbol<Trace, First + I, Children>{children}...};
}

template <class M>
constexpr bool has_state();

template <class... C>
constexpr bool any_has_state(const boost::hana::tuple<C...>*) {
  return (has_state<typename unwrap_named<C>::type>() || ... || false);
}

/// Whether M, or a module in it, has or will have parameters, buffers or randomness.
template <class M>
constexpr bool has_state() {
  if constexpr (composite_module<M>)
    return any_has_state(static_cast<const decltype(M::children)*>(nullptr));
  else if constexpr (requires { M::is_random; })
    return true;
  else
    return parameter_count<M>() + buffer_count<M>() > 0 || requires { M::is_lazy; };
}

}  // namespace detail

/// A symbolic value of a graph.
template <class X>
concept symbolic = detail::is_symbol<std::remove_cvref_t<X>>;

/// Applies a module to values of a graph. The result is another value, or a std::tuple of values if
/// the module has several outputs. The same module under the same name on the same values is one
/// node; on other values it is another node with the same parameters. A module that has parameters
/// or draws random numbers must be named.
template <class Child, symbolic First, symbolic... Rest>
constexpr auto apply(const Child& child, const First& first, const Rest&... rest) {
  static_assert(
      detail::is_named<Child> || !detail::has_state<typename detail::unwrap_named<Child>::type>(),
      "ikebana: in a graph, a module with parameters or randomness needs a name: "
      "\"fc1\"_m(linear<..>{}, x)");
  const auto joined = detail::join_symbols(first, rest...);
  using joined_type = std::remove_cvref_t<decltype(joined)>;
  const auto made =
      detail::add_application<Child>(static_cast<const typename joined_type::trace_type*>(nullptr),
                                     joined.children, child, typename joined_type::ids{});
  using made_type = std::remove_cvref_t<decltype(made)>;
  constexpr int outputs =
      static_cast<int>(detail::output_count<typename detail::unwrap_named<Child>::type>());
  return detail::symbols_of<typename made_type::trace_type, made_type::value>(
      made.children, std::make_integer_sequence<int, outputs>{});
}

/// A module called with something else, a tensor say.
template <class Child, class First, class... Rest>
requires(!(symbolic<First> && ... &&
           symbolic<Rest>)) constexpr int apply(const Child&, const First&, const Rest&...) {
  static_assert(symbolic<First>,
                "ikebana: a module has no weights, so it cannot be called with a tensor: call a "
                "model of it, initialize<T, shape..>(module, seed)");
  static_assert(!symbolic<First> || (symbolic<Rest> && ...),
                "ikebana: in a graph, a module takes values of the graph alone");
  return 0;
}

}  // namespace ikebana
