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

/// The wiring of a graph as a type: the number of inputs, the values that are the outputs, the
/// applications.
template <int Inputs, class Outputs, class... Applications>
struct graph_wiring;

template <int Inputs, int... Outputs, class... Applications>
struct graph_wiring<Inputs, int_list<Outputs...>, Applications...> {
  static constexpr std::size_t steps = sizeof...(Applications);
  static constexpr const char* names[steps + 1] = {name_of<typename Applications::child_type>()...,
                                                   nullptr};
  static constexpr bool named[steps + 1] = {is_named<typename Applications::child_type>..., false};

  static constexpr bool same_name(std::size_t a, std::size_t b) {
    return named[a] && named[b] && std::string_view{names[a]} == std::string_view{names[b]};
  }

  /// The first application of the child that application s runs: a name stands for one child.
  static constexpr std::size_t first_of(std::size_t s) {
    for (std::size_t i = 0; i < s; ++i)
      if (same_name(i, s)) return i;
    return s;
  }

  /// The number of application s's child among the children.
  static constexpr std::size_t child_of(std::size_t s) {
    std::size_t child = 0;
    const std::size_t first = first_of(s);
    for (std::size_t i = 0; i < first; ++i) child += first_of(i) == i;
    return child;
  }

  static constexpr std::size_t children = [] {
    std::size_t n = 0;
    for (std::size_t i = 0; i < steps; ++i) n += first_of(i) == i;
    return n;
  }();

  /// The application that first runs a child.
  static constexpr std::size_t application_of(std::size_t child) {
    for (std::size_t i = 0; i < steps; ++i)
      if (first_of(i) == i && child-- == 0) return i;
    return 0;
  }

  static constexpr auto table() {
    wiring_table<steps> w;
    w.inputs = Inputs;
    std::size_t s = 0;
    [[maybe_unused]] const auto fill = [&]<class A>(std::type_identity<A>) {
      w.steps[s].child = static_cast<int>(child_of(s));
      w.steps[s].input_count = A::arity;
      for (std::size_t i = 0; i < A::arity; ++i) w.steps[s].inputs[i] = A::inputs[i];
      ++s;
    };
    (fill(std::type_identity<Applications>{}), ...);
    w.output_count = sizeof...(Outputs);
    std::size_t o = 0;
    ((w.outputs[o++] = Outputs), ...);
    return w;
  }
};

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

  template <symbolic... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

namespace detail {

/// A wiring whose inputs have names.
template <class Wiring, literal... Names>
struct named_wiring : Wiring {
  static constexpr std::array<std::string_view, sizeof...(Names)> input_names{
      std::string_view{Names.data, Names.size()}...};
};

}  // namespace detail

/// A graph whose inputs may be given by name.
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

  template <symbolic... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

namespace detail {

template <int N, int... I>
constexpr auto trace_graph(const auto& f, std::integer_sequence<int, I...>) {
  return f(symbol<trace<N>, I, boost::hana::tuple<>>{}...);
}

template <int N, class F, int... I>
constexpr bool takes(std::integer_sequence<int, I...>) {
  return requires(const F& f) { f(symbol<trace<N>, I, boost::hana::tuple<>>{}...); };
}

/// How many symbols F takes: the first arity that it accepts.
template <class F, int N = 1>
constexpr int graph_arity() {
  static_assert(N <= static_cast<int>(max_arity),
                "ikebana: graph expects a function of one to eight symbols");
  if constexpr (takes<N, F>(std::make_integer_sequence<int, N>{}))
    return N;
  else
    return graph_arity<F, N + 1>();
}

template <class Wiring, class Children, std::size_t... I>
constexpr auto gather_children(const Children& children, std::index_sequence<I...>) {
  return boost::hana::make_tuple(boost::hana::at_c<Wiring::application_of(I)>(children)...);
}

/// The type that the application gives a child's module must be that of the first application under
/// that name.
template <class Wiring, class... A>
constexpr bool one_module_per_name() {
  bool same = true;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    ((same = same &&
             std::is_same_v<typename A::child_type,
                            typename nth<static_cast<int>(Wiring::first_of(I)), A...>::child_type>),
     ...);
  }
  (std::index_sequence_for<A...>{});
  return same;
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

template <literal... Names, int GraphInputs, class... A, class Children, int... Ids>
constexpr auto to_graph(const joined_traces<trace<GraphInputs, A...>, Children, Ids...>& joined) {
  using wiring = graph_wiring<GraphInputs, int_list<Ids...>, A...>;
  constexpr bool distinct = one_module_per_name<wiring, A...>();
  static_assert(distinct, "ikebana: two modules of one graph have the same name");
  if constexpr (distinct)
    return make_graph<wiring, Names...>(
        gather_children<wiring>(joined.children, std::make_index_sequence<wiring::children>{}));
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
/// x)) + x; })`. The function runs once, in the compiler, on symbols; a module is applied as
/// `"name"_m(module, x)` or, where it has neither parameters nor randomness, as `module(x)`. Values
/// may be used more than once: their gradients are summed. A module applied twice under one name
/// has its parameters once. Several outputs are returned as a std::tuple. Inputs may have names:
/// `graph<"source", "mask">([](auto source, auto mask) { .. })`.
template <detail::literal... Names, class F>
constexpr auto graph(const F& f) {
  constexpr int inputs = detail::graph_arity<F>();
  return detail::outputs_to_graph<Names...>(
      detail::trace_graph<inputs>(f, std::make_integer_sequence<int, inputs>{}));
}

}  // namespace ikebana
