#pragma once

#include <array>
#include <boost/hana/tuple.hpp>
#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/trace.hpp"

namespace ikebana {

namespace detail {

/// The types of the children, each once, that a symbol depends on.
template <class... C>
struct child_set {
  static constexpr int size = static_cast<int>(sizeof...(C));
};

template <std::size_t I, class T>
struct indexed_type {
  using type = T;
};
template <class I, class... T>
struct indexed_types;
template <std::size_t... I, class... T>
struct indexed_types<std::index_sequence<I...>, T...> : indexed_type<I, T>... {};
template <std::size_t I, class T>
indexed_type<I, T> pick(const indexed_type<I, T>&);

/// The I-th type of a set.
template <int I, class Set>
struct type_at;
template <int I, class... C>
struct type_at<I, child_set<C...>>
    : decltype(pick<static_cast<std::size_t>(I)>(
          std::declval<indexed_types<std::index_sequence_for<C...>, C...>>())) {};

/// The position of a type in a set; the set's size if it is not there.
template <class C, class... A>
constexpr int find_position(child_set<A...>) {
  const bool is_same[] = {std::is_same_v<C, A>..., true};
  int i = 0;
  while (!is_same[i]) ++i;
  return i;
}
template <class C, class Set>
inline constexpr int position_in = find_position<C>(Set{});

/// The I-th type of T.
template <int I, class... T>
using nth = typename type_at<I, child_set<T...>>::type;

/// The positions in a set of the types of another.
template <class Set, class... B>
constexpr auto find_positions(child_set<B...>) {
  return std::array<int, sizeof...(B) + 1>{position_in<B, Set>..., 0};
}
template <class Other, class Set>
inline constexpr auto positions_in = find_positions<Set>(Other{});

template <class Set, class Other>
constexpr int count_absent() {
  int n = 0;
  for (int i = 0; i < Other::size; ++i)
    n += positions_in<Other, Set>[static_cast<std::size_t>(i)] == Set::size ? 1 : 0;
  return n;
}
/// The positions in Other of its types that are not in Set.
template <class Set, class Other>
inline constexpr auto absent_in = [] {
  std::array<int, static_cast<std::size_t>(count_absent<Set, Other>()) + 1> at{};
  std::size_t n = 0;
  for (int i = 0; i < Other::size; ++i)
    if (positions_in<Other, Set>[static_cast<std::size_t>(i)] == Set::size) at[n++] = i;
  return at;
}();

template <class... A, class Other, std::size_t... I>
child_set<A..., typename type_at<absent_in<child_set<A...>, Other>[I], Other>::type...> append(
    child_set<A...>, Other, std::index_sequence<I...>);

/// The types of several sets, each once.
template <class... Set>
struct united;
template <class Set>
struct united<Set> : std::type_identity<Set> {};
template <class Set, class... Rest>
struct united<Set, Set, Rest...> : united<Set, Rest...> {};
template <class Set, class Other, class... Rest>
requires(count_absent<Set, Other>() == 0) struct united<Set, Other, Rest...>
    : united<Set, Rest...> {
};
template <class Set, class Other, class... Rest>
struct united<Set, Other, Rest...>
    : united<decltype(append(
                 Set{}, Other{},
                 std::make_index_sequence<static_cast<std::size_t>(count_absent<Set, Other>())>{})),
             Rest...> {};

}  // namespace detail

/// A symbolic value of a graph: its number in the trace under construction. Its type tells the
/// children that it depends on. The argument type of the function passed to `graph`.
template <class Set>
struct symbol {
  using set_type = Set;
  detail::trace_builder* trace = nullptr;
  int id = 0;

  /// Refused: the elements are known only when the model runs.
  template <class B>
  requires std::same_as<B, bool>
  constexpr explicit operator B() const {
    static_assert(
        !std::same_as<B, bool>,
        "ikebana: a value of a graph is no condition for if, ?:, && or !, because a graph "
        "is traced without its numbers: use where(condition, a, b), or choose");
    return {};
  }
  /// Refused: `relu(x)` makes a module of x, `relu{}(x)` applies one to it.
  template <class M>
  requires(any_module<M>) constexpr explicit operator M() const {
    static_assert(!any_module<M>,
                  "ikebana: a module is made and then applied: relu{}(x), with parameters "
                  "\"fc\"_m(linear<20, 10>{}, x)");
    return M{};
  }
};

namespace detail {

template <class X>
inline constexpr bool is_symbol = false;
template <class Set>
inline constexpr bool is_symbol<symbol<Set>> = true;

/// The numbers of the types of Set, which is the union of the symbols' sets, in their trace.
template <class Set, class First, class... Rest>
constexpr int unite_numbers(const symbol<First>& first, const symbol<Rest>&... rest) {
  trace_builder& t = *first.trace;
  const int known = t.numbers_of(first.id);
  if constexpr (std::is_same_v<Set, First> && (std::is_same_v<Set, Rest> && ...))
    if (((t.numbers_of(rest.id) == known) && ...)) return known;
  const int to = t.add_numbers(Set::size);
  [[maybe_unused]] const auto add = [&]<class Other>(const symbol<Other>& x) {
    const int from = t.numbers_of(x.id);
    for (int i = 0; i < Other::size; ++i)
      t.unite(to + positions_in<Other, Set>[static_cast<std::size_t>(i)], from + i);
  };
  add(first);
  (add(rest), ...);
  return to;
}

template <class M>
constexpr bool has_state();

template <class... C>
constexpr bool any_has_state(const boost::hana::tuple<C...>*) {
  return (has_state<typename unwrap_named<C>::type>() || ... || false);
}

/// Whether every value of M, which may lack members of a module, is M{}.
template <class M>
constexpr bool is_determined_by_type() {
  if constexpr (any_module<M>)
    return is_stateless<M>();
  else
    return std::is_empty_v<M>;
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
/// or draws random numbers must be named. One without a name is the same if it has the same type
/// and is equal; it is never the same if it has members and no operator ==.
template <class Child, symbolic... X>
requires(sizeof...(X) > 0) constexpr auto apply(const Child& child, const X&... x) {
  using module_type = typename detail::unwrap_named<Child>::type;
  static_assert(detail::is_named<Child> || !detail::has_state<module_type>(),
                "ikebana: in a graph, a module with parameters or randomness needs a name: "
                "\"fc1\"_m(linear<..>{}, x)");
  static_assert(sizeof...(X) <= max_arity, "ikebana: in a graph, a module takes at most 8 values");
  using set = typename detail::united<typename X::set_type..., detail::child_set<Child>>::type;
  constexpr std::size_t outputs = detail::output_count<module_type>();
  detail::trace_builder* traces[] = {x.trace...};
  detail::trace_builder& t = *traces[0];
  const int numbers = detail::unite_numbers<set>(x...);
  detail::traced_step step;
  step.type = t.number(numbers + detail::position_in<Child, set>);
  ((step.inputs[step.input_count++] = x.id), ...);
  step.outputs = static_cast<int>(outputs);
  step.is_shared = detail::is_named<Child>;
  if constexpr (requires { child.exchanges_last(); }) step.exchanges_last = child.exchanges_last();
  if constexpr (requires { child.shape_options(); }) step.shape_options = child.shape_options();
  if constexpr (!detail::is_determined_by_type<module_type>()) step.held = t.hold(child);
  const int first = t.add_step(step, numbers);
  if constexpr (outputs == 1)
    return symbol<set>{&t, first};
  else
    return [&]<int... I>(std::integer_sequence<int, I...>) {
      return std::tuple(symbol<std::enable_if_t<(I >= 0), set>>{&t, first + I}...);
    }
  (std::make_integer_sequence<int, static_cast<int>(outputs)>{});
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
