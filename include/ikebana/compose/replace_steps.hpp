#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "ikebana/module/alike.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"

namespace ikebana::detail {

/// What replaces a step of a graph: a module, by its index, that takes one of the step's inputs.
struct step_replacement {
  int by = -1;  ///< -1: the step stays.
  int input = 0;

  /// As one number, for types with short names.
  constexpr signed char code() const {
    return static_cast<signed char>(by < 0 ? -1 : by * static_cast<int>(max_arity) + input);
  }
  static constexpr step_replacement of(signed char code) {
    if (code < 0) return {};
    return {code / static_cast<int>(max_arity), code % static_cast<int>(max_arity)};
  }
};

/// The trace of a graph some of whose steps, of children that are alike, are replaced. By step,
/// `Codes` tells how. Behind the graph's children stands one for each module of By, which is empty.
/// Names and leaves keep their order.
template <class Trace, auto Codes, class... By>
struct replaced_steps {
  static constexpr bool captures = false;  ///< No child of this trace holds values.
  static constexpr std::size_t own_children = Trace::sizes.children;
  static constexpr auto sizes = [] {
    auto n = Trace::sizes;
    n.children += sizeof...(By);
    return n;
  }();

  struct tables {
    decltype(Trace::table.wiring) wiring = Trace::table.wiring;
    decltype(Trace::table.numbered) numbered = Trace::table.numbered;
    int parts[own_children + sizeof...(By) + 1]{};  ///< By child.
    bool has_replaced[own_children + 1]{};
  };
  static constexpr tables table = [] {
    tables t;
    auto& w = t.wiring;
    for (std::size_t s = 0; s < w.size(); ++s)
      if (Codes[s] >= 0) t.has_replaced[w.steps[s].child] = true;
    for (std::size_t s = 0; s < w.size(); ++s) {
      auto& step = w.steps[s];
      if (!t.has_replaced[step.child]) continue;
      if (const auto r = step_replacement::of(Codes[s]); r.by >= 0) {
        step.child = static_cast<int>(own_children) + r.by;
        step.inputs[0] = step.inputs[r.input];
        step.input_count = 1;
      }
      step.part = t.parts[step.child]++;
      t.numbered[static_cast<std::size_t>(step.number())] = {step.child, step.part};
    }
    return t;
  }();

  /// The child of this trace that has modules M: one of By, or what remains of one of the graph's.
  template <class M>
  static constexpr std::size_t child_of = [] {
    constexpr bool is_new[]{std::is_same_v<M, By>..., false};
    for (std::size_t b = 0; b < sizeof...(By); ++b)
      if (is_new[b]) return own_children + b;
    for (std::size_t s = 0; s < Trace::table.wiring.size(); ++s)
      if (const auto c = static_cast<std::size_t>(Trace::table.wiring.steps[s].child);
          Trace::template holds<M>(c))
        return c;
    return own_children + sizeof...(By);
  }();
  template <class M>
  static constexpr std::size_t count = static_cast<std::size_t>(table.parts[child_of<M>]);
  template <class M>
  static constexpr std::array<M, count<M>> values = [] {
    std::array<M, count<M>> all{};
    if constexpr (child_of<M> < own_children) {
      std::size_t n = 0;
      for (std::size_t s = 0; s < Codes.size(); ++s)
        if (const auto& step = Trace::table.wiring.steps[s];
            step.child == static_cast<int>(child_of<M>) && Codes[s] < 0)
          all[n++] = Trace::template values<M>[static_cast<std::size_t>(step.part)];
    }
    return all;
  }();

  template <std::size_t I, class C>
  static constexpr auto child(const C& c) {
    if constexpr (table.has_replaced[I])
      return alike<replaced_steps, typename unwrap_named<C>::type>{};
    else
      return c;
  }
};

/// Modules that may replace a step.
template <class... By>
struct replacements {
  template <class Graph, auto Codes, std::size_t... I, class... C>
  static constexpr auto make(std::index_sequence<I...>, const C&... child) {
    using trace = replaced_steps<typename Graph::trace, Codes, By...>;
    return Graph::template retrace<trace>(trace::template child<I>(child)...,
                                          alike<trace, By>{}...);
  }
};

}  // namespace ikebana::detail
