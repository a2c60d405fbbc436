#pragma once

#include <array>
#include <boost/hana/at.hpp>
#include <boost/hana/tuple.hpp>
#include <boost/hana/unpack.hpp>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/module/arithmetic.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

namespace detail {

/// The wiring of a graph as a type that contains only numbers: the number of inputs, the values
/// that are outputs, and for each step its child and the values that it takes.
template <int Inputs, class Outputs, class... Steps>
struct graph_wiring;

template <int Inputs, int... Outputs, class... Steps>
struct graph_wiring<Inputs, int_list<Outputs...>, Steps...> {
  static constexpr auto table() {
    wiring_table<sizeof...(Steps)> w;
    w.inputs = Inputs;
    std::size_t s = 0;
    [[maybe_unused]] const auto fill = [&]<int Child, int... In>(int_list<Child, In...>) {
      w.steps[s++] = {Child, {In...}, sizeof...(In)};
    };
    (fill(Steps{}), ...);
    w.output_count = sizeof...(Outputs);
    std::size_t o = 0;
    ((w.outputs[o++] = Outputs), ...);
    return w;
  }
};

/// The children of a graph. Several applications of a module under one name are one child.
template <class... A>
struct graph_children {
  static constexpr std::size_t steps = sizeof...(A);
  int of_step[steps + 1]{};
  int first_step[steps + 1]{};  ///< Per child.
  std::size_t count = 0;

  /// The first step of a child. Not by addresses of marks: g++ with -fsanitize=undefined takes no
  /// comparison of addresses for a constant.
  template <class Child>
  static constexpr std::size_t first_of() {
    const bool is_same[] = {std::is_same_v<Child, typename A::child_type>..., true};
    std::size_t s = 0;
    while (!is_same[s]) ++s;
    return s;
  }

  constexpr graph_children() {
    const std::size_t firsts[] = {first_of<typename A::child_type>()..., steps};
    const bool is_shared[] = {is_named<typename A::child_type>..., false};
    for (std::size_t s = 0; s < steps; ++s) {
      const std::size_t first = is_shared[s] ? firsts[s] : s;
      if (first == s) first_step[count++] = static_cast<int>(s);
      of_step[s] = first == s ? static_cast<int>(count) - 1 : of_step[first];
    }
  }
};

template <class... A>
inline constexpr graph_children<A...> graph_children_of{};

}  // namespace detail

/// Modules composed by a function of symbolic values: a graph in which a value may be used more
/// than once.
template <class Wiring, class... Children>
struct graph_module {
  static constexpr std::string_view kind = "graph";
  boost::hana::tuple<Children...> children{};

  static constexpr auto wiring() { return Wiring::table(); }

  template <class... C>
  static constexpr auto rebind(C... c) {
    return graph_module<Wiring, C...>{boost::hana::tuple<C...>{std::move(c)...}};
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

namespace detail {

/// A wiring with named inputs.
template <class Wiring, literal... Names>
struct named_wiring : Wiring {
  static constexpr std::array<std::string_view, sizeof...(Names)> input_names{
      std::string_view{Names.data, Names.size()}...};
};

}  // namespace detail

/// A graph whose inputs can be passed by name.
template <class Wiring, detail::literal... Names, class... Children>
requires(sizeof...(Names) >
         0) struct graph_module<detail::named_wiring<Wiring, Names...>, Children...> {
  static constexpr std::string_view kind = "graph";
  static constexpr auto input_names = detail::named_wiring<Wiring, Names...>::input_names;
  boost::hana::tuple<Children...> children{};

  static constexpr auto wiring() { return Wiring::table(); }

  template <class... C>
  static constexpr auto rebind(C... c) {
    return graph_module<detail::named_wiring<Wiring, Names...>, C...>{
        boost::hana::tuple<C...>{std::move(c)...}};
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

namespace detail {

template <int N, int... I>
constexpr auto trace_graph(const auto& f, std::integer_sequence<int, I...>) {
  return f(symbol<trace<N>, I, boost::hana::tuple<>>{}...);
}

// The number of symbols that a function takes is found without instantiating its body, because a
// mistake in the body would be an error for each number that is tried. F takes N arguments if a
// call is ambiguous between F and another function of N arguments.

template <int N>
struct other_function;
template <>
struct other_function<1> {
  template <class A, class = void>
  void operator()(A) const;
};
template <>
struct other_function<2> {
  template <class A, class B, class = void>
  void operator()(A, B) const;
};
template <>
struct other_function<3> {
  template <class A, class B, class C, class = void>
  void operator()(A, B, C) const;
};
template <>
struct other_function<4> {
  template <class A, class B, class C, class D, class = void>
  void operator()(A, B, C, D) const;
};
template <>
struct other_function<5> {
  template <class A, class B, class C, class D, class E, class = void>
  void operator()(A, B, C, D, E) const;
};
template <>
struct other_function<6> {
  template <class A, class B, class C, class D, class E, class F, class = void>
  void operator()(A, B, C, D, E, F) const;
};
template <>
struct other_function<7> {
  template <class A, class B, class C, class D, class E, class F, class G, class = void>
  void operator()(A, B, C, D, E, F, G) const;
};
template <>
struct other_function<8> {
  template <class A, class B, class C, class D, class E, class F, class G, class H, class = void>
  void operator()(A, B, C, D, E, F, G, H) const;
};

template <class F, int N>
struct two_functions : F, other_function<N> {
  using F::operator();
  using other_function<N>::operator();
};

template <int I, int N>
using input_symbol = symbol<trace<N>, I, boost::hana::tuple<>>;

template <class F, int... I>
constexpr bool is_ambiguous(std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  return !requires(const two_functions<F, n>& f) { f(input_symbol<I, n>{}...); };
}

/// For variadic functions, to which overload resolution prefers the other one: by calls.
template <class F, int... I>
constexpr bool takes(std::integer_sequence<int, I...>) {
  return requires(const F& f) { f(input_symbol<I, sizeof...(I)>{}...); };
}

template <class F, bool ByCalls, int N = 1>
constexpr int find_arity() {
  if constexpr (N > static_cast<int>(max_arity)) {
    return 0;
  } else {
    constexpr std::make_integer_sequence<int, N> each;
    constexpr bool found = [&] {
      if constexpr (ByCalls)
        return takes<F>(each);
      else
        return is_ambiguous<F>(each);
    }();
    if constexpr (found)
      return N;
    else
      return find_arity<F, ByCalls, N + 1>();
  }
}

/// The least number of symbols that F accepts; 0 if there is none up to max_arity.
template <class F>
constexpr int graph_arity() {
  if constexpr (std::is_class_v<F> && !std::is_final_v<F>) {
    constexpr int n = find_arity<F, false>();
    if constexpr (n > 0)
      return n;
    else
      return find_arity<F, true>();
  } else {
    return find_arity<F, true>();
  }
}

template <class Wiring, literal... Names, class... C>
constexpr auto make_graph(const boost::hana::tuple<C...>& children) {
  static_assert(sizeof...(Names) == 0 || sizeof...(Names) == Wiring::table().inputs,
                "ikebana: a graph with named inputs has a name for each");
  if constexpr (sizeof...(Names) == 0)
    return graph_module<Wiring, C...>{children};
  else
    return graph_module<named_wiring<Wiring, Names...>, C...>{children};
}

template <int Child, class A, std::size_t... I>
int_list<Child, A::inputs[I]...> numbered_step(std::index_sequence<I...>);

template <literal... Names, int GraphInputs, class... A, class Children, int... Ids>
constexpr auto to_graph(const joined_traces<trace<GraphInputs, A...>, Children, Ids...>& joined) {
  constexpr const auto& found = graph_children_of<A...>;
  return [&]<std::size_t... S, std::size_t... C>(std::index_sequence<S...>,
                                                 std::index_sequence<C...>) {
    using wiring = graph_wiring<GraphInputs, int_list<Ids...>,
                                decltype(numbered_step<found.of_step[S], A>(
                                    std::make_index_sequence<A::arity>{}))...>;
    return make_graph<wiring, Names...>(
        boost::hana::make_tuple(boost::hana::at_c<found.first_step[C]>(joined.children)...));
  }
  (std::index_sequence_for<A...>{}, std::make_index_sequence<found.count>{});
}

// `(call, result_of_graph{})` is the call's value, or result_of_graph if it has none. A condition
// on the type of a call whose function does not compile would be an error of its own.
struct result_of_graph {};
template <class T>
constexpr T operator,(const T& x, result_of_graph) {
  return x;
}

template <literal... Names, class R>
requires std::same_as<R, result_of_graph>
constexpr auto outputs_to_graph(const R&) {
  static_assert(!std::same_as<R, result_of_graph>,
                "ikebana: the function of a graph returns nothing: return a value, or a "
                "std::tuple of them");
  return to_graph<Names...>(join_symbols(symbol<trace<1>, 0, boost::hana::tuple<>>{}));
}
template <literal... Names, class Trace, int Id, class Children>
constexpr auto outputs_to_graph(const symbol<Trace, Id, Children>& out) {
  return to_graph<Names...>(join_symbols(out));
}
template <literal... Names, symbolic... Out>
constexpr auto outputs_to_graph(const std::tuple<Out...>& out) {
  return std::apply([](const auto&... each) { return to_graph<Names...>(join_symbols(each...)); },
                    out);
}

}  // namespace detail

/// A module from a function of symbols: `graph([](auto x) { return relu{}("fc"_m(lazy_linear<8>{},
/// x)) + x; })`. The function runs once, in the compiler. A module is applied as `"name"_m(module,
/// x)` or, if it has neither parameters nor randomness, as `module(x)`. Values may be used more
/// than once; their gradients are summed. A module applied twice under one name has one set of
/// parameters. Several outputs are returned as a std::tuple. Inputs can have names:
/// `graph<"source", "mask">([](auto source, auto mask) { .. })`. Does not compile if two modules
/// share a name or if the function takes more than eight symbols.
template <detail::literal... Names, class F>
constexpr auto graph(const F& f) {
  constexpr int inputs = detail::graph_arity<F>();
  static_assert(inputs > 0, "ikebana: graph expects a function of one to eight symbols");
  if constexpr (inputs > 0) {
    using numbers = std::make_integer_sequence<int, inputs>;
    return detail::outputs_to_graph<Names...>(
        (detail::trace_graph<inputs>(f, numbers{}), detail::result_of_graph{}));
  }
}

}  // namespace ikebana
