#pragma once

#include <boost/hana/tuple.hpp>
#include <boost/hana/unpack.hpp>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/compose/add.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

namespace detail {

/// The wiring of a graph as a type: the number of inputs, the value that is the output, the
/// applications.
template <int Inputs, int Output, class... Applications>
struct graph_wiring {
  static constexpr auto table() {
    constexpr std::size_t n = sizeof...(Applications);
    wiring_table<n> w;
    w.inputs = Inputs;
    std::size_t s = 0;
    [[maybe_unused]] const auto fill = [&]<class A>(std::type_identity<A>) {
      w.steps[s].child = static_cast<int>(s);
      w.steps[s].input_count = A::arity;
      for (std::size_t i = 0; i < A::arity; ++i) w.steps[s].inputs[i] = A::inputs[i];
      ++s;
    };
    (fill(std::type_identity<Applications>{}), ...);
    w.outputs[0] = Output;
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

template <int GraphInputs, class... A, int Id, class... Children>
constexpr auto to_graph(
    const symbol<trace<GraphInputs, A...>, Id, boost::hana::tuple<Children...>>& out) {
  constexpr const char* names[] = {name_of<typename A::child_type>()..., nullptr};
  constexpr bool named[] = {is_named<typename A::child_type>..., false};
  constexpr bool distinct = [&] {
    for (std::size_t i = 0; i < sizeof...(A); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (named[i] && named[j] && std::string_view{names[i]} == std::string_view{names[j]})
          return false;
    return true;
  }();
  static_assert(distinct, "ikebana: two modules of one graph have the same name");
  return graph_module<graph_wiring<GraphInputs, Id, A...>, Children...>{out.children};
}

}  // namespace detail

/// A module from a function of symbols: `graph([](auto x) { return relu{}("fc"_m(lazy_linear<8>{},
/// x)) + x; })`. The function runs once, in the compiler, on symbols; a module is applied as
/// `"name"_m(module, x)` or, where it has neither parameters nor randomness, as `module(x)`. Values
/// may be used more than once: their gradients are summed.
template <class F>
constexpr auto graph(const F& f) {
  constexpr int inputs = detail::graph_arity<F>();
  return detail::to_graph(
      detail::trace_graph<inputs>(f, std::make_integer_sequence<int, inputs>{}));
}

}  // namespace ikebana
