#pragma once

#include <boost/hana/tuple.hpp>
#include <boost/hana/unpack.hpp>
#include <cstddef>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/program.hpp"
#include "ikebana/module/program_builder.hpp"

namespace ikebana::detail {

/// Whether M runs one of its children, of which the last one joins the others.
template <class M>
constexpr bool is_choice_module() {
  return requires { M::is_choice; };
}

template <leaf_module M>
constexpr int lower_new_leaf(const M& m, program_builder& to, int scope) {
  const int leaf = to.add_leaf(M::kind, parameter_count<M>(), buffer_count<M>(), scope);
  if constexpr (parameter_count<M>() > 0) {
    if (!to.counting())
      for (const parameter_spec& p : m.parameters()) to.parameters[to.n.parameters++] = {leaf, p};
    else
      to.n.parameters += parameter_count<M>();
  }
  if constexpr (buffer_count<M>() > 0) {
    if (!to.counting())
      for (const buffer_spec& b : m.buffers()) to.buffers[to.n.buffers++] = {leaf, b};
    else
      to.n.buffers += buffer_count<M>();
  }
  return leaf;
}

/// How many leaves and scopes stand in a module, itself among the leaves and not among the scopes.
struct module_counts {
  int leaves = 0;
  int scopes = 0;
};

template <class M>
constexpr module_counts count_modules() {
  if constexpr (composite_module<M>)
    return []<class... C>(const boost::hana::tuple<C...>*) {
      module_counts n;
      ((n.leaves += count_modules<typename unwrap_named<C>::type>().leaves,
        n.scopes += 1 + count_modules<typename unwrap_named<C>::type>().scopes),
       ...);
      return n;
    }(static_cast<const decltype(M::children)*>(nullptr));
  else
    return {1, 0};
}

template <leaf_module M>
[[gnu::cold, gnu::noinline]] constexpr void declare(const M& m, program_builder& to, int scope) {
  lower_new_leaf(m, to, scope);
}

template <composite_module M>
constexpr void declare(const M& m, program_builder& to, int scope);

template <class C>
[[gnu::cold, gnu::noinline]] constexpr void declare_child(const C& child, int index,
                                                          program_builder& to, int scope) {
  declare(module_of(child), to, to.add_scope(scope, name_of<C>(), is_named<C> ? -1 : index));
}

/// Writes down the leaves with their parameters and buffers, depth first in the order of children:
/// so do PyTorch's state dicts.
template <composite_module M>
constexpr void declare(const M& m, program_builder& to, int scope) {
  boost::hana::unpack(m.children, [&](const auto&... child) {
    int i = 0;
    if constexpr (is_choice_module<M>()) {
      const int outer = to.arm;
      const int choice = to.add_choice(scope, static_cast<int>(sizeof...(child)) - 1);
      ((to.enter_child(choice, i, outer), declare_child(child, i++, to, scope)), ...);
      to.arm = outer;
    } else {
      (declare_child(child, i++, to, scope), ...);
    }
  });
}

/// Where the leaves and scopes of a module begin.
struct module_place {
  int leaf = 0;
  int scope = 0;
};

template <leaf_module M>
[[gnu::cold, gnu::noinline]] constexpr value_list lower(const M& m, program_builder& to,
                                                        const value_list& in, module_place place) {
  const auto [leaf, scope] = place;
  const std::size_t call = to.begin_call(M::kind, in, scope);
  value_list out;
  out.count = output_count<M>();
  if (to.counting()) {
    for (std::size_t i = 0; i < out.count; ++i) out.ids[i] = to.add_value({});
    to.n.edges += in.count;
    to.n.saved += saved_count<M>();
    ++to.n.nodes;
    return out;
  }
  shape_list shapes;
  for (std::size_t i = 0; i < in.count; ++i) {
    shapes.push_back(to.values[in.ids[i]]);
    to.claim(in.ids[i], input_kind_of<M>(i, in.count), i, scope);
  }
  shape_list inferred_shapes;
  if (to.error.ok()) {
    const inferred r = infer_leaf(m, shapes);
    if (r.ok())
      inferred_shapes = r.outputs;
    else
      to.refuse(r.error, scope);
  }
  program_node& node = to.add_node(leaf, in, inferred_shapes, out);
  node.keeps = keeps_of<M>();
  node.role = role_of(m);
  node.is_view = is_view_module<M>();
  if constexpr (requires { M::joins_alternatives; }) node.choice = to.choice;
  node.saved_count = saved_count<M>();
  if constexpr (saved_count<M>() > 0) {
    if (to.error.ok())
      for (const saved_spec& s : m.saved(shapes))
        to.saved[to.n.saved++] = {static_cast<int>(to.n.nodes), s};
    else
      to.n.saved += saved_count<M>();
  }
  ++to.n.nodes;
  to.end_call(call, out);
  return out;
}

template <composite_module M>
constexpr value_list lower(const M& m, program_builder& to, const value_list& in,
                           module_place place);

/// Not inlined: of a network of many equal children, the code of one is enough.
template <class C, class Step>
[[gnu::cold, gnu::noinline]] constexpr void lower_step(const C& child, program_builder& to,
                                                       const Step& step, int* local,
                                                       int& local_count, module_place place) {
  value_list in;
  for (; in.count < step.input_count; ++in.count) in.ids[in.count] = local[step.inputs[in.count]];
  const value_list out = lower(module_of(child), to, in, place);
  for (std::size_t i = 0; i < out.count; ++i) local[local_count++] = out.ids[i];
}

template <composite_module M>
constexpr value_list lower(const M& m, program_builder& to, const value_list& in,
                           module_place place) {
  constexpr auto w = M::wiring();
  const std::size_t call = to.begin_call(M::kind, in, place.scope);
  return boost::hana::unpack(m.children, [&]<class... C>(const C&... child) {
    constexpr std::size_t children = sizeof...(child);
    constexpr std::size_t most_values = max_arity * (w.size() + 1);
    int local[most_values]{};
    int local_count = 0;
    if (to.error.ok() && in.count != static_cast<std::size_t>(w.inputs)) {
      to.error = diagnostic{"a composition takes {expected} inputs, got {got}", w.inputs,
                            static_cast<dim_t>(in.count)};
      if (!to.counting()) to.error.path = scope_path(to.scopes, place.scope);
    }
    for (int i = 0; i < w.inputs; ++i) local[local_count++] = in.ids[i];
    constexpr module_counts counts[children + 1]{count_modules<typename unwrap_named<C>::type>()...,
                                                 {}};
    module_place places[children + 1]{};
    places[0] = {place.leaf, place.scope + 1};
    for (std::size_t c = 0; c < children; ++c)
      places[c + 1] = {places[c].leaf + counts[c].leaves, places[c].scope + 1 + counts[c].scopes};
    if constexpr (is_choice_module<M>()) {
      const int outer = to.arm, choice = to.choice_at(place.scope);
      for (std::size_t s = 0; s < w.size(); ++s) {
        int i = 0;
        ((i == w.steps[s].child ? (to.enter_child(choice, i, outer),
                                   lower_step(child, to, w.steps[s], local, local_count, places[i]))
                                : void(),
          ++i),
         ...);
      }
      to.arm = outer;
    } else if constexpr (w.in_order(children)) {
      int i = 0;
      ((lower_step(child, to, w.steps[i], local, local_count, places[i]), ++i), ...);
    } else {
      for (std::size_t s = 0; s < w.size(); ++s) {
        int i = 0;
        ((i == w.steps[s].child ? lower_step(child, to, w.steps[s], local, local_count, places[i])
                                : void(),
          ++i),
         ...);
      }
    }
    value_list out;
    for (; out.count < w.output_count; ++out.count)
      out.ids[out.count] = local[w.outputs[out.count]];
    to.end_call(call, out);
    return out;
  });
}

/// Writes down a whole network, whose input values are there.
template <any_module M>
constexpr value_list lower_root(const M& m, program_builder& to, const value_list& in) {
  declare(m, to, to.add_scope(-1, nullptr, 0));
  return lower(m, to, in, {0, 0});
}

/// What a network with this many inputs comes to.
template <any_module M>
constexpr program_builder count_network(std::size_t inputs) {
  program_builder to;
  value_list in;
  for (; in.count < inputs; ++in.count) in.ids[in.count] = to.add_value({});
  lower_root(M{}, to, in);
  return to;
}

}  // namespace ikebana::detail
