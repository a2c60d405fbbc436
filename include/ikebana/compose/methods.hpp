#pragma once

#include <array>
#include <boost/hana/at.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/module/alike.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

namespace detail {

/// Whether two children of methods are one: they have the same name.
template <class A, class B>
constexpr bool have_one_name() {
  if constexpr (is_named<A> && is_named<B>)
    return std::is_same_v<typename A::name_type, typename B::name_type>;
  else
    return false;
}

template <class... C>
constexpr child_set<C...> children_as_set(const boost::hana::tuple<C...>*) {
  return {};
}
template <class M>
using child_set_of = decltype(children_as_set(static_cast<const decltype(M::children)*>(nullptr)));

template <class... A, class... B>
constexpr auto operator+(child_set<A...>, child_set<B...>) {
  return child_set<A..., B...>{};
}

/// By child of all methods, one after another: the first one with its name, which is itself if
/// there is none.
template <class... C>
constexpr auto find_first_children(child_set<C...>) {
  std::array<int, sizeof...(C) + 1> first{};
  [[maybe_unused]] int j = 0;
  [[maybe_unused]] const auto find = [&]<class B>(std::type_identity<B>) {
    int i = 0;
    first[static_cast<std::size_t>(j)] = j;
    [[maybe_unused]] const bool found = ((have_one_name<C, B>() || (++i, false)) || ...);
    if (found && i < j) first[static_cast<std::size_t>(j)] = i;
    ++j;
  };
  (find(std::type_identity<C>{}), ...);
  return first;
}

/// Whether children of one name are of one type.
template <class... C>
constexpr bool are_named_alike(child_set<C...>) {
  const auto agree = []<class A>(std::type_identity<A>) {
    return ((!have_one_name<A, C>() || std::is_same_v<A, C>)&&... && true);
  };
  return (agree(std::type_identity<C>{}) && ... && true);
}

template <class... C>
constexpr bool have_names_if_state(child_set<C...>) {
  return ((is_named<C> || !has_state<typename unwrap_named<C>::type>()) && ... && true);
}

template <class... C>
constexpr std::array<std::size_t, sizeof...(C) + 1> count_outputs(child_set<C...>) {
  return {output_count<typename unwrap_named<C>::type>()..., 0};
}

struct methods_sizes {
  std::size_t steps = 0, inputs = 0, outputs = 0, children = 0, numbered = 0;
};

/// The methods as one composition, as values. M are named compositions.
template <class... M>
struct methods_table {
  static constexpr std::size_t count = sizeof...(M);
  static constexpr std::array<std::string_view, count> names{
      std::string_view{M::name_type::c_str()}...};
  template <std::size_t K>
  using method_type = typename type_at<static_cast<int>(K), child_set<M...>>::type::module_type;

  using all = decltype((child_set<>{} + ... + child_set_of<typename M::module_type>{}));
  static constexpr auto first = find_first_children(all{});

  /// By child of all methods: its index among those that are there once.
  static constexpr auto place = [] {
    auto to = first;
    int n = 0;
    for (std::size_t j = 0; j < all::size; ++j)
      to[j] = first[j] == static_cast<int>(j) ? n++ : to[static_cast<std::size_t>(first[j])];
    return to;
  }();
  static constexpr std::size_t children = [] {
    std::size_t n = 0;
    for (std::size_t j = 0; j < all::size; ++j) n += first[j] == static_cast<int>(j) ? 1 : 0;
    return n;
  }();

  /// Where the children, inputs and outputs of each method begin among all.
  struct starts {
    std::size_t child = 0, input = 0, output = 0;
  };
  static constexpr std::array<starts, count + 1> begins = [] {
    std::array<starts, count + 1> at{};
    std::size_t k = 0;
    const auto add = [&](std::size_t n, const auto& w) {
      at[k + 1] = {at[k].child + n, at[k].input + static_cast<std::size_t>(w.inputs),
                   at[k].output + w.output_count};
      ++k;
    };
    (add(child_count<typename M::module_type>, wiring_of<typename M::module_type>), ...);
    return at;
  }();

  static constexpr std::size_t steps = (wiring_of<typename M::module_type>.size() + ... + 0);
  static constexpr std::size_t numbered_bound =
      (numbered_children_of<typename M::module_type>.size() + ... + 0);

  template <std::size_t Numbered>
  struct tables {
    wiring_table<steps> wiring{};
    std::array<numbered_child, Numbered> numbered{};
    std::size_t numbered_count = 0;
  };

  template <std::size_t Numbered>
  static constexpr auto make_tables() {
    tables<Numbered> t;
    auto& w = t.wiring;
    w.inputs = static_cast<int>(begins[count].input);
    w.output_count = 0;
    int step = 0, values = w.inputs;
    std::size_t k = 0;
    constexpr auto outputs = count_outputs(all{});
    const auto add = [&]<std::size_t N>(const auto& of,
                                        const std::array<numbered_child, N>& numbered_of) {
      const starts& at = begins[k++];
      // By number of the method: the number among all.
      int number[N + 1]{};
      for (std::size_t n = 0; n < N; ++n) {
        const int child = place[at.child + static_cast<std::size_t>(numbered_of[n].child)];
        int same = -1;
        for (std::size_t i = 0; i < t.numbered_count; ++i)
          if (t.numbered[i].child == child && t.numbered[i].part == numbered_of[n].part)
            same = static_cast<int>(i);
        if (same < 0) {
          same = static_cast<int>(t.numbered_count);
          t.numbered[t.numbered_count++] = {child, numbered_of[n].part};
        }
        number[n] = same;
      }
      const int first_value = values - of.inputs;
      const auto value = [&](int v) {
        return v < of.inputs ? static_cast<int>(at.input) + v : first_value + v;
      };
      for (std::size_t s = 0; s < of.size(); ++s) {
        auto& to = w.steps[step++];
        to = {place[at.child + static_cast<std::size_t>(of.steps[s].child)],
              {},
              of.steps[s].input_count,
              of.steps[s].part,
              number[of.steps[s].number()]};
        for (std::size_t i = 0; i < to.input_count; ++i)
          to.inputs[i] = value(of.steps[s].inputs[i]);
        values += static_cast<int>(outputs[at.child + static_cast<std::size_t>(of.steps[s].child)]);
      }
      // What a method observes is an output of the method alone.
      for (std::size_t o = 0; o < of.output_count; ++o)
        if (of.outputs[o] >= 0) w.outputs[w.output_count++] = value(of.outputs[o]);
    };
    (add(wiring_of<typename M::module_type>, numbered_children_of<typename M::module_type>), ...);
    return t;
  }
  static constexpr std::size_t numbered_count = make_tables<numbered_bound>().numbered_count;
  static constexpr auto made = make_tables<numbered_bound>();
  static constexpr auto numbered = [] {
    std::array<numbered_child, numbered_count> n{};
    for (std::size_t i = 0; i < n.size(); ++i) n[i] = made.numbered[i];
    return n;
  }();

  /// The child of all methods that becomes child I of the methods.
  template <std::size_t I>
  static constexpr std::size_t origin = [] {
    std::size_t j = 0;
    while (place[j] != static_cast<int>(I)) ++j;
    return j;
  }();
};

}  // namespace detail

/// See `methods`. Its inputs and outputs are those of all methods, one after another.
template <class Table, class... Children>
struct methods_module {
  static constexpr std::string_view kind = "methods";
  static constexpr bool is_methods = true;
  using table = Table;
  boost::hana::tuple<Children...> children{};

  static constexpr const auto& wiring() { return Table::made.wiring; }
  static constexpr const auto& numbered_children() { return Table::numbered; }

  template <class... C>
  static constexpr auto rebind(C... c) {
    return methods_module<Table, C...>{boost::hana::tuple<C...>{std::move(c)...}};
  }

  /// Method K as a module.
  template <std::size_t K>
  constexpr auto method() const {
    using type = typename Table::template method_type<K>;
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return type::rebind(
          boost::hana::at_c<static_cast<std::size_t>(Table::place[Table::begins[K].child + I])>(
              children)...);
    }
    (std::make_index_sequence<detail::child_count<type>>{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

namespace detail {

/// Where child j of all methods is: the method, and the child within it.
template <class Table, std::size_t J, class... M>
constexpr const auto& child_of_methods(const boost::hana::tuple<M...>& all) {
  constexpr std::size_t k = [] {
    std::size_t n = 0;
    while (Table::begins[n + 1].child <= J) ++n;
    return n;
  }();
  return boost::hana::at_c<J - Table::begins[k].child>(
      module_of(boost::hana::at_c<k>(all)).children);
}

template <class Table, std::size_t... I, class... M>
constexpr auto make_methods(const boost::hana::tuple<M...>& all, std::index_sequence<I...>) {
  using made = methods_module<
      Table,
      std::remove_cvref_t<decltype(child_of_methods<Table, Table::template origin<I>>(all))>...>;
  return made{{child_of_methods<Table, Table::template origin<I>>(all)...}};
}

template <class First, class... Rest>
constexpr First first_of(const First& first, const Rest&...) {
  return first;
}

template <class M>
constexpr bool is_method() {
  if constexpr (is_named<M>)
    return composite_module<typename M::module_type>;
  else
    return false;
}

}  // namespace detail

/// One model with several ways through it: `methods("encode"_m = graph(..), "decode"_m =
/// graph(..))`. Modules of one name are one, with one set of parameters, whose paths do not contain
/// the names of the methods. `initialize` takes a shape for each input of each method, in this
/// order; `model.part<"encode">()` runs and trains a method. Called itself, the model runs all
/// methods: it takes all inputs and gives all outputs, at most 8 each. Does not compile if two
/// modules of one name differ in type, or if a module with parameters or randomness has no name.
template <class... M>
constexpr auto methods(const M&... method) {
  static_assert(sizeof...(M) > 0 && (detail::is_method<M>() && ... && true),
                "ikebana: methods takes named graphs or other compositions: methods(\"encode\"_m = "
                "graph(..), \"decode\"_m = graph(..))");
  if constexpr (sizeof...(M) > 0 && (detail::is_method<M>() && ... && true)) {
    using table = detail::methods_table<M...>;
    constexpr auto last = table::begins[table::count];
    constexpr bool is_small = last.input <= max_arity && last.output <= max_arity;
    constexpr bool agrees = detail::are_named_alike(typename table::all{});
    constexpr bool has_names = detail::have_names_if_state(typename table::all{});
    static_assert(is_small, "ikebana: methods have at most 8 inputs and 8 outputs together");
    static_assert(agrees, "ikebana: two methods have modules of one name that differ in type");
    static_assert(has_names,
                  "ikebana: in methods, a module with parameters or randomness needs a name");
    if constexpr (is_small && agrees && has_names)
      return detail::make_methods<table>(boost::hana::tuple<M...>{method...},
                                         std::make_index_sequence<table::children>{});
    else
      return detail::first_of(method...);  // so that its uses are no further errors
  }
}

}  // namespace ikebana
