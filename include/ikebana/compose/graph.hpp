#pragma once

#include <array>
#include <bit>
#include <boost/hana/tuple.hpp>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/module/alike.hpp"
#include "ikebana/module/arithmetic.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/shape_list.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/module/trace.hpp"

namespace ikebana {

namespace detail {

/// Whether F{} is the function. Others capture modules and numbers, by value.
template <class F>
inline constexpr bool captures_nothing = std::is_empty_v<F>&& std::default_initializable<F>;

/// A function of type F whose captures are all zero: enough to find the wiring of a graph, which
/// may not depend on them.
template <class F>
constexpr F zero_function() {
  if constexpr (std::default_initializable<F>)
    return F{};
  else
    return std::bit_cast<F>(std::array<unsigned char, sizeof(F)>{});
}

template <class F>
concept has_zero_function = std::default_initializable<F> ||
    (std::is_trivially_copyable_v<F>&& requires {
      typename std::bool_constant<(
          static_cast<void>(std::bit_cast<F>(std::array<unsigned char, sizeof(F)>{})), true)>;
    });

using first_symbol = symbol<child_set<>>;

template <class F, std::size_t... I>
constexpr auto call_with_symbols(const F& f, [[maybe_unused]] trace_builder& t,
                                 std::index_sequence<I...>) {
  return f(first_symbol{&t, static_cast<int>(I)}...);
}

/// The outputs of a graph's function.
template <class R>
struct graph_outputs;
template <class Set>
struct graph_outputs<symbol<Set>> {
  using set = Set;
  static constexpr int size = 1;
  static constexpr int finish(const symbol<Set>& x, int* ids) {
    ids[0] = x.id;
    return unite_numbers<set>(x);
  }
};
template <symbolic... X>
struct graph_outputs<std::tuple<X...>> {
  using set = typename united<typename X::set_type...>::type;
  static constexpr int size = static_cast<int>(sizeof...(X));
  static constexpr int finish(const std::tuple<X...>& of, int* ids) {
    return std::apply(
        [&](const auto&... x) {
          int n = 0;
          ((ids[n++] = x.id), ...);
          return unite_numbers<set>(x...);
        },
        of);
  }
};

/// Runs the function of a graph, and then visit(trace, outputs).
template <class F, int Inputs, class Visit>
constexpr auto run_traced(const F& f, bool merges, Visit&& visit) {
  trace_builder t(Inputs);
  const auto result = call_with_symbols(f, t, std::make_index_sequence<std::size_t{Inputs}>{});
  using outputs = graph_outputs<std::remove_cvref_t<decltype(result)>>;
  int ids[max_arity]{};
  const int numbers = outputs::finish(result, ids);
  t.finish(ids, outputs::size, numbers, outputs::set::size, merges);
  return visit(t, ids);
}

/// How the types of children become children: one child for all applications under a name; one for
/// all of a type without a name, if its values need no memory of their own; else one each.
enum class graph_child : unsigned char { named, alike, single };

template <class C>
constexpr graph_child kind_of_child() {
  if constexpr (is_named<C>)
    return graph_child::named;
  else if constexpr (leaf_module<C> && !requires(C & m, const shape_list& in) { m.bind(in); })
    return graph_child::alike;
  else
    return graph_child::single;
}

template <class... C>
constexpr auto kinds_of_children(child_set<C...>) {
  return std::array<graph_child, sizeof...(C) + 1>{kind_of_child<C>()..., graph_child::named};
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

template <int>
using input_symbol = first_symbol;

template <class F, int... I>
constexpr bool is_ambiguous(std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  return !requires(const two_functions<F, n>& f) { f(input_symbol<I>{}...); };
}

/// For variadic functions, to which overload resolution prefers the other one: by calls.
template <class F, int... I>
constexpr bool takes(std::integer_sequence<int, I...>) {
  return requires(const F& f) { f(input_symbol<I>{}...); };
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

/// The numbers of steps, children, and what bears an index or a name.
struct graph_sizes {
  std::size_t steps = 0, children = 0, numbered = 0;
};

/// A graph as values.
template <graph_sizes N>
struct graph_table {
  wiring_table<N.steps> wiring{};
  std::array<numbered_child, N.numbered> numbered{};
  int type[N.children + 1]{};        ///< By child: the position of its type in the set.
  int first_step[N.children + 1]{};  ///< By child.
  int shape_options[N.steps + 1]{};
};

/// Calls step(s, child, part, numbered) for each step of a trace, and before it child(type, s) and
/// numbered(child, part) for what is new in it.
template <std::size_t Types>
constexpr void number_steps(const trace_builder& t, const std::array<graph_child, Types>& kinds,
                            auto&& add_child, auto&& add_numbered, auto&& add_step) {
  int child_of[Types]{}, number_of[Types]{}, parts[Types]{};
  int children = 0, numbered = 0;
  for (int s = 0; s < t.size(); ++s) {
    const auto type = static_cast<std::size_t>(t[s].type);
    const graph_child kind = kinds[type];
    const bool seen = kind != graph_child::single && parts[type] > 0;
    if (!seen) {
      child_of[type] = children++;
      add_child(t[s].type, s);
    }
    const int part = kind == graph_child::alike ? parts[type] : 0;
    ++parts[type];
    if (!seen || kind == graph_child::alike) {
      number_of[type] = numbered++;
      add_numbered(child_of[type], part);
    }
    add_step(s, child_of[type], part, number_of[type]);
  }
}

/// The trace of a function of N symbols, as constants. Its name is short: no symbol contains the
/// steps of a graph.
template <class F, int N>
struct traced_graph {
  static constexpr bool captures = !captures_nothing<F>;
  using result =
      decltype(call_with_symbols(std::declval<const F&>(), std::declval<trace_builder&>(),
                                 std::make_index_sequence<std::size_t{N}>{}));
  using set = typename graph_outputs<result>::set;
  static constexpr auto kinds = kinds_of_children(set{});

  template <class Visit>
  static constexpr auto run(Visit&& visit) {
    return run_traced<F, N>(zero_function<F>(), !captures, visit);
  }

  static constexpr graph_sizes sizes = run([](const trace_builder& t, const int*) {
    graph_sizes n;
    n.steps = static_cast<std::size_t>(t.size());
    number_steps(
        t, kinds, [&](int, int) { ++n.children; }, [&](int, int) { ++n.numbered; },
        [](int, int, int, int) {});
    return n;
  });

  static constexpr auto table = run([](const trace_builder& t, const int* outputs) {
    graph_table<sizes> g;
    auto& w = g.wiring;
    w.inputs = N;
    std::size_t child = 0, numbered = 0;
    number_steps(
        t, kinds,
        [&](int type, int step) {
          g.type[child] = type;
          g.first_step[child++] = step;
        },
        [&](int of, int part) {
          g.numbered[numbered++] = {of, part};
        },
        [&](int s, int of, int part, int number) {
          auto& step = w.steps[s];
          g.shape_options[s] = t[s].shape_options;
          step.child = of;
          step.part = part;
          step.numbered = number;
          step.input_count = static_cast<std::size_t>(t[s].input_count);
          for (int i = 0; i < t[s].input_count; ++i) step.inputs[i] = t[s].inputs[i];
        });
    w.output_count = static_cast<std::size_t>(graph_outputs<result>::size);
    for (std::size_t o = 0; o < w.output_count; ++o) w.outputs[o] = outputs[o];
    return g;
  });

  /// Whether this child has modules M.
  template <class M>
  static constexpr bool holds(std::size_t c) {
    return table.type[c] == position_in<M, set>;
  }
  /// Of children that are alike: their number and their values.
  template <class M>
  static constexpr std::size_t count = [] {
    std::size_t n = 0;
    for (const numbered_child& c : table.numbered)
      n += table.type[c.child] == position_in<M, set> ? 1 : 0;
    return n;
  }();
  template <class M>
  static constexpr auto collect(const trace_builder& t) {
    std::array<M, count<M>> all{};
    std::size_t n = 0;
    for (int s = 0; s < t.size(); ++s)
      if (t[s].type == position_in<M, set>)
        all[n++] = static_cast<const traced_child<M>&>(*t[s].held).child;
    return all;
  }
  template <class M>
  static constexpr std::array<M, count<M>> values = [] {
    if constexpr (std::is_empty_v<M>)
      return std::array<M, count<M>>{};
    else
      return run(
          [](const trace_builder& t, const int*) { return traced_graph::template collect<M>(t); });
  }();

  /// Child I of the graph.
  template <std::size_t I>
  static constexpr auto child(const trace_builder& t) {
    using C = typename type_at<table.type[I], set>::type;
    if constexpr (kinds[static_cast<std::size_t>(table.type[I])] == graph_child::alike) {
      alike<traced_graph, C> all;
      if constexpr (!all.is_empty) all.held = collect<C>(t);
      return all;
    } else if constexpr (is_determined_by_type<typename unwrap_named<C>::type>()) {
      return C{};
    } else {
      return static_cast<const traced_child<C>&>(*t[table.first_step[I]].held).child;
    }
  }
  template <std::size_t... I>
  static constexpr auto children(const trace_builder& t, std::index_sequence<I...>) {
    return boost::hana::make_tuple(child<I>(t)...);
  }
  static constexpr auto all_children(const trace_builder& t) {
    return children(t, std::make_index_sequence<sizes.children>{});
  }

  /// Whether a trace has the same steps.
  static constexpr bool is_wired_like(const trace_builder& t, const int* outputs) {
    const auto& w = table.wiring;
    if (static_cast<std::size_t>(t.size()) != sizes.steps) return false;
    for (std::size_t o = 0; o < w.output_count; ++o)
      if (w.outputs[o] != outputs[o]) return false;
    for (int s = 0; s < t.size(); ++s) {
      const auto& step = w.steps[s];
      if (t[s].type != table.type[step.child]) return false;
      if (t[s].shape_options != table.shape_options[s]) return false;
      for (int i = 0; i < t[s].input_count; ++i)
        if (t[s].inputs[i] != step.inputs[i]) return false;
    }
    return true;
  }
};

}  // namespace detail

/// Modules composed by a function of symbolic values: a graph in which a value may be used more
/// than once.
template <class Trace, class... Children>
struct graph_module {
  static constexpr std::string_view kind = "graph";
  using trace = Trace;
  boost::hana::tuple<Children...> children{};

  static constexpr const auto& wiring() { return Trace::table.wiring; }
  static constexpr const auto& numbered_children() { return Trace::table.numbered; }

  template <class... C>
  static constexpr auto rebind(C... c) {
    return retrace<Trace>(std::move(c)...);
  }
  template <class Other, class... C>
  static constexpr auto retrace(C... c) {
    return graph_module<Other, C...>{boost::hana::tuple<C...>{std::move(c)...}};
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

namespace detail {

/// A trace with named inputs.
template <class Trace, literal... Names>
struct named_inputs : Trace {
  static constexpr std::array<std::string_view, sizeof...(Names)> input_names{
      std::string_view{Names.data, Names.size()}...};
};

}  // namespace detail

/// A graph whose inputs can be passed by name.
template <class Trace, detail::literal... Names, class... Children>
requires(sizeof...(Names) >
         0) struct graph_module<detail::named_inputs<Trace, Names...>, Children...> {
  static constexpr std::string_view kind = "graph";
  static constexpr auto input_names = detail::named_inputs<Trace, Names...>::input_names;
  using trace = Trace;
  boost::hana::tuple<Children...> children{};

  static constexpr const auto& wiring() { return Trace::table.wiring; }
  static constexpr const auto& numbered_children() { return Trace::table.numbered; }

  template <class... C>
  static constexpr auto rebind(C... c) {
    return retrace<Trace>(std::move(c)...);
  }
  template <class Other, class... C>
  static constexpr auto retrace(C... c) {
    return graph_module<detail::named_inputs<Other, Names...>, C...>{
        boost::hana::tuple<C...>{std::move(c)...}};
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

namespace detail {

template <class Trace, literal... Names, class... C>
constexpr auto make_graph(const boost::hana::tuple<C...>& children) {
  if constexpr (sizeof...(Names) == 0)
    return graph_module<Trace, C...>{children};
  else
    return graph_module<named_inputs<Trace, Names...>, C...>{children};
}

/// The graph of a function that captures nothing.
template <class F, int N, literal... Names>
inline constexpr auto graph_of = traced_graph<F, N>::run([](const trace_builder& t, const int*) {
  return make_graph<traced_graph<F, N>, Names...>(traced_graph<F, N>::all_children(t));
});

template <int N, literal... Names, class F>
constexpr auto graph_with_captures(const F& f) {
  using trace = traced_graph<F, N>;
  return run_traced<F, N>(f, false, [](const trace_builder& t, const int* outputs) {
    if (!trace::is_wired_like(t, outputs))
      throw_error(
          error("the function of a graph captures what changes its modules or their wiring"));
    return make_graph<trace, Names...>(trace::all_children(t));
  });
}

/// The type of a call that has no value, for a message. A condition on the type of a call whose
/// function does not compile would be an error of its own.
struct result_of_graph {};
template <class T>
constexpr T operator,(const T& x, result_of_graph) {
  return x;
}
/// A module in place of a graph whose function does not compile, so that its uses are no further
/// errors.
struct graph_with_a_mistake {
  static constexpr std::string_view kind = "graph";
  constexpr inferred infer(const shape_list& in) const { return in[0]; }
  template <class T>
  void forward(const context<T>&) const {}
  template <class T>
  void backward(const context<T>&) const {}
};

template <class R>
inline constexpr bool is_graph_result = false;
template <class Set>
inline constexpr bool is_graph_result<symbol<Set>> = true;
template <symbolic... X>
inline constexpr bool is_graph_result<std::tuple<X...>> = sizeof...(X) > 0;

}  // namespace detail

/// A module from a function of symbols: `graph([](auto x) { return relu{}("fc"_m(lazy_linear<8>{},
/// x)) + x; })`. The function runs in the compiler, so it is a constant expression, and what it
/// captures must not change which modules it applies to what. A module is applied as
/// `"name"_m(module, x)` or, if it has neither parameters nor randomness, as `module(x)`. Values
/// may be used more than once; their gradients are summed. A module applied twice under one name
/// has one set of parameters. Several outputs are returned as a std::tuple. Inputs can have names:
/// `graph<"source", "mask">([](auto source, auto mask) { .. })`. Does not compile if two modules
/// share a name or if the function takes more than eight symbols. Throws `error` if the function
/// captures numbers that change the wiring.
template <detail::literal... Names, class F>
constexpr auto graph(const F& f) {
  constexpr int inputs = detail::graph_arity<F>();
  static_assert(inputs > 0, "ikebana: graph expects a function of one to eight symbols");
  if constexpr (inputs > 0) {
    static_assert(sizeof...(Names) == 0 || sizeof...(Names) == inputs,
                  "ikebana: a graph with named inputs has a name for each");
    using result =
        decltype((detail::call_with_symbols(f, std::declval<detail::trace_builder&>(),
                                            std::make_index_sequence<std::size_t{inputs}>{}),
                  detail::result_of_graph{}));
    static_assert(!std::is_same_v<result, detail::result_of_graph>,
                  "ikebana: the function of a graph returns nothing: return a value, or a "
                  "std::tuple of them");
    static_assert(!std::is_floating_point_v<result>,
                  "ikebana: the function of a graph returns a number: return a value that its "
                  "arguments make, or a std::tuple of them");
    static_assert(
        detail::has_zero_function<F>,
        "ikebana: the function of a graph captures by value, and only modules and numbers");
    // What does not compile has no such type for g++, which goes on.
    if constexpr (!requires { requires detail::is_graph_result<std::remove_cvref_t<result>>; })
      return detail::graph_with_a_mistake{};
    else if constexpr (detail::captures_nothing<F>)
      return detail::graph_of<F, inputs, Names...>;
    else
      return detail::graph_with_captures<inputs, Names...>(f);
  }
}

}  // namespace ikebana
