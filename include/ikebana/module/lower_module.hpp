#pragma once

#include <boost/hana/at.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/program.hpp"
#include "ikebana/module/program_builder.hpp"
#include "ikebana/module/protocol.hpp"

namespace ikebana::detail {

/// Whether M runs only one of its children; the last child joins the others.
template <class M>
constexpr bool is_choice_module() {
  return requires { M::is_choice; };
}

/// The names of M's inputs; empty if M does not name them.
template <class M>
constexpr std::span<const std::string_view> input_names_of() {
  if constexpr (requires { M::input_names; })
    return M::input_names;
  else
    return {};
}

template <leaf_module M>
constexpr int lower_new_leaf(const M& m, program_builder& to, int scope) {
  const int leaf = to.add_leaf(M::kind, parameter_count<M>(), buffer_count<M>(), scope);
  if constexpr (parameter_count<M>() > 0) {
    if (!to.counting())
      for (const parameter_spec& p : m.parameters()) {
        to.add_elements(p.extents, scope);
        to.parameters[to.n.parameters++] = {leaf, p};
      }
    else
      to.n.parameters += parameter_count<M>();
  }
  if constexpr (requires { M::is_frozen; }) ++to.n.frozen;
  if constexpr (buffer_count<M>() > 0) {
    if (!to.counting())
      for (const buffer_spec& b : m.buffers()) {
        to.add_elements(b.extents, scope);
        to.buffers[to.n.buffers++] = {leaf, b};
      }
    else
      to.n.buffers += buffer_count<M>();
  }
  return leaf;
}

/// The number of leaves and scopes of a module. It counts itself among the leaves, but not among
/// the scopes.
struct module_counts {
  int leaves = 0;
  int scopes = 0;
};

template <class M>
constexpr module_counts count_modules();

/// Cached, so that it is evaluated once per type.
template <class M>
inline constexpr module_counts counts_of = count_modules<M>();

template <class M>
constexpr module_counts count_modules() {
  if constexpr (composite_module<M>)
    return []<class... C>(const boost::hana::tuple<C...>*) {
      module_counts n;
      [[maybe_unused]] const auto add = [&n](const module_counts& each, std::size_t parts) {
        n.leaves += static_cast<int>(parts) * each.leaves;
        n.scopes += static_cast<int>(parts) * (1 + each.scopes);
      };
      (add(counts_of<typename unwrap_named<C>::type>, part_count<C>), ...);
      return n;
    }(static_cast<const decltype(M::children)*>(nullptr));
  else
    return {1, 0};
}

template <class M>
[[gnu::cold, gnu::noinline]] constexpr void declare(const M& m, program_builder& to, int scope) {
  if constexpr (has_protocol<M>)
    lower_new_leaf(m, to, scope);
  else if (!to.counting() && to.error.ok())
    to.refuse({protocol_sentence<M>.data}, scope);
}

template <composite_module M>
constexpr void declare(const M& m, program_builder& to, int scope);

template <class M>
[[gnu::cold, gnu::noinline]] constexpr void declare_child(const M& m, const child_name& name,
                                                          program_builder& to, int scope) {
  declare(m, to, to.add_scope(scope, name.name, name.index));
}

/// The indices of two children with the same name.
struct children_of_one_name {
  bool found = false;
  int first = 0, second = 0;
};

template <class C>
constexpr path_text name_text(int index) {
  if constexpr (is_named<C>)
    return path_text{std::string_view{name_of<C>()}};
  else
    return path_text{}.append(static_cast<dim_t>(index));
}

template <composite_module M, class... C>
constexpr children_of_one_name find_one_name(const boost::hana::tuple<C...>*) {
  constexpr const auto& numbered = numbered_children_of<M>;
  constexpr auto size = static_cast<int>(numbered.size());
  constexpr bool has_name[] = {is_named<C>..., false};
  const std::uint64_t given[] = {
      is_named<C> ? hash_path(name_text<C>(0).view()) : std::uint64_t{0}..., 0};
  std::uint64_t names[static_cast<std::size_t>(size) + 1]{};
  int named[sizeof...(C) + 1]{}, named_count = 0;
  for (int i = 0; i < size; ++i) {
    const int c = numbered[static_cast<std::size_t>(i)].child;
    if (has_name[c]) named[named_count++] = i;
    names[i] = has_name[c] ? given[c] : hash_path(path_text{}.append(static_cast<dim_t>(i)).view());
  }
  children_of_one_name twice;
  for (int n = 0; n < named_count; ++n)
    for (int i = 0; i < size; ++i) {
      const int a = i < named[n] ? i : named[n], b = i < named[n] ? named[n] : i;
      if (a == b || names[a] != names[b]) continue;
      if (!twice.found || b < twice.second) twice = {true, a, b};
    }
  return twice;
}

template <composite_module M>
inline constexpr children_of_one_name one_name_of =
    find_one_name<M>(static_cast<const decltype(M::children)*>(nullptr));

/// Refuses two children with the same name, because their parameters would have equal paths.
template <composite_module M>
[[gnu::cold]] constexpr void refuse_one_name(const M& m, program_builder& to, int scope) {
  constexpr children_of_one_name twice = one_name_of<M>;
  const char* what = "two children have this name, {expected} and {got}";
  // The child that a composition adds itself is the last one.
  if constexpr (requires { M::own_child; })
    if (twice.second + 1 == static_cast<int>(numbered_children_of<M>.size())) what = M::own_child;
  to.refuse({what, twice.first, twice.second}, scope);
  if (!to.error.path.empty()) to.error.path.append(".");
  // Not a constant in the lambda: g++ 12 fails on that.
  int before = twice.second;
  for_each_child(m, [&](const auto&, const child_name& name) {
    if (before-- != 0) return;
    if (name.index < 0)
      to.error.path.append(std::string_view{name.name});
    else
      to.error.path.append(static_cast<dim_t>(name.index));
  });
}

/// Declares the leaves with their parameters and buffers, depth first in the order of children,
/// which is the order of PyTorch's state dicts.
template <composite_module M>
constexpr void declare(const M& m, program_builder& to, int scope) {
  if constexpr (one_name_of<M>.found)
    if (!to.counting() && to.error.ok()) refuse_one_name(m, to, scope);
  if constexpr (is_choice_module<M>()) {
    const int outer = to.arm;
    const int choice = to.add_choice(scope, static_cast<int>(child_count<M>) - 1);
    int i = 0;
    for_each_child(m, [&](const auto& child, const child_name& name) {
      to.enter_child(choice, i++, outer);
      declare_child(child, name, to, scope);
    });
    to.arm = outer;
  } else {
    for_each_child(m, [&](const auto& child, const child_name& name) {
      declare_child(child, name, to, scope);
    });
  }
}

/// The first leaf and scope of a module.
struct module_start {
  int leaf = 0;
  int scope = 0;

  constexpr module_start with(const module_start& relative) const {
    return {leaf + relative.leaf, scope + relative.scope};
  }
};

/// For a refused module: makes its outputs without a node.
template <class M>
constexpr value_list lower(const M&, program_builder& to, const value_list&, module_start) {
  value_list out;
  for (out.count = output_count<M>(); out.count > max_arity;) --out.count;
  for (std::size_t i = 0; i < out.count; ++i) out.ids[i] = to.add_value({});
  return out;
}

template <leaf_module M>
requires has_protocol<M>
[[gnu::cold, gnu::noinline]] constexpr value_list lower(const M& m, program_builder& to,
                                                        const value_list& in, module_start start) {
  const auto [leaf, scope] = start;
  const std::size_t call = to.begin_call(M::kind, in, scope, input_names_of<M>());
  const int outer = to.enter_checkpoint(is_checkpoint<M>());
  const std::size_t kept = to.checkpoint < 0 ? 0 : changing_buffer_count<M>();
  value_list out;
  out.count = output_count<M>();
  if (to.counting()) {
    for (std::size_t i = 0; i < out.count; ++i) out.ids[i] = to.add_value({});
    to.n.edges += in.count;
    to.n.saved += saved_count<M>() + 2 * kept;
    to.n.plan_bytes += plan_bytes<M>();
    to.checkpoint = outer;
    ++to.n.nodes;
    return out;
  }
  shape_list shapes;
  for (std::size_t i = 0; i < in.count; ++i) {
    shapes.push_back(to.values[in.ids[i]]);
    to.claim(in.ids[i], input_kind_of<M>(i, in.count), i, scope);
    to.add_elements(shapes[i], scope);
  }
  shape_list inferred_shapes;
  if (to.error.ok()) {
    const inferred r = infer_leaf(m, shapes);
    if (r.ok())
      inferred_shapes = r.outputs;
    else
      to.refuse(r.error, scope);
    for (std::size_t i = 0; i < inferred_shapes.size(); ++i)
      to.add_elements(inferred_shapes[i], scope);
  }
  program_node& node = to.add_node(leaf, in, inferred_shapes, out);
  node.keeps = keeps_of(m);
  node.role = role_of(m);
  node.is_view = is_view_module<M>();
  if constexpr (maybe_view<M>)
    if (to.error.ok()) node.view = m.view(shapes[0]);
  if constexpr (requires { M::joins_alternatives; }) node.choice = to.choice;
  node.saved_count = saved_count<M>();
  if constexpr (saved_count<M>() > 0) {
    if (to.error.ok())
      for (const saved_spec& s : m.saved(shapes)) {
        to.add_elements(s.extents, scope);
        to.saved[to.n.saved++] = {static_cast<int>(to.n.nodes), s};
      }
    else
      to.n.saved += saved_count<M>();
  }
  if constexpr (plan_bytes<M>() > 0) {
    node.first_plan = to.n.plan_bytes;
    to.n.plan_bytes += plan_bytes<M>();
  }
  node.kept_buffers = kept;
  if (kept > 0) to.keep_buffers(leaf);
  to.checkpoint = outer;
  ++to.n.nodes;
  to.end_call(call, out);
  to.watch(scope, out);
  return out;
}

template <composite_module M>
constexpr value_list lower(const M& m, program_builder& to, const value_list& in,
                           module_start start);

/// Not inlined: many equal children share one copy of the code.
template <class M, class Step>
[[gnu::cold, gnu::noinline]] constexpr void lower_step(const M& child, program_builder& to,
                                                       const Step& step, int* local,
                                                       int& local_count, module_start start) {
  value_list in;
  for (; in.count < step.input_count; ++in.count) in.ids[in.count] = local[step.inputs[in.count]];
  const value_list out = lower(child, to, in, start);
  for (std::size_t i = 0; i < out.count; ++i) local[local_count++] = out.ids[i];
}

/// What bears an index or a name in a composition: where it starts relative to the composition, and
/// the number of values of its inputs and steps.
template <std::size_t N>
struct child_table {
  module_start starts[N + 1]{};
  std::size_t values = 0;
};

template <composite_module M>
constexpr auto tabulate_children() {
  return []<class... C>(const boost::hana::tuple<C...>*) {
    constexpr const auto& w = wiring_of<M>;
    constexpr const auto& numbered = numbered_children_of<M>;
    const module_counts counts[]{counts_of<typename unwrap_named<C>::type>..., {}};
    const std::size_t outputs[]{output_count<typename unwrap_named<C>::type>()..., 0};
    child_table<numbered.size()> t;
    t.starts[0] = {0, 1};
    for (std::size_t c = 0; c < numbered.size(); ++c) {
      const module_counts& n = counts[numbered[c].child];
      t.starts[c + 1] = {t.starts[c].leaf + n.leaves, t.starts[c].scope + 1 + n.scopes};
    }
    t.values = static_cast<std::size_t>(w.inputs);
    for (std::size_t s = 0; s < w.size(); ++s) t.values += outputs[w.steps[s].child];
    return t;
  }(static_cast<const decltype(M::children)*>(nullptr));
}

template <composite_module M>
inline constexpr auto children_of = tabulate_children<M>();

// Children are accessed by index: as arguments of one call, each would take a register or a stack
// slot.
template <composite_module M, std::size_t... I>
constexpr value_list lower_children(const M& m, program_builder& to, const value_list& in,
                                    module_start start, std::index_sequence<I...>) {
  constexpr const auto& w = wiring_of<M>;
  constexpr const auto& table = children_of<M>;
  int local[table.values + 1]{};
  int local_count = 0;
  for (int i = 0; i < w.inputs; ++i) local[local_count++] = in.ids[i];
  if constexpr (w.in_order(sizeof...(I)) && !is_choice_module<M>()) {
    (lower_step(part_of(boost::hana::at_c<I>(m.children), w.steps[I].part), to, w.steps[I], local,
                local_count, start.with(table.starts[w.steps[I].number()])),
     ...);
  } else {
    const int outer = to.arm;
    [[maybe_unused]] const int choice = is_choice_module<M>() ? to.choice_at(start.scope) : -1;
    for (std::size_t s = 0; s < w.size(); ++s) {
      const auto& step = w.steps[s];
      if constexpr (is_choice_module<M>()) to.enter_child(choice, step.child, outer);
      static_cast<void>(
          ((static_cast<int>(I) == step.child &&
            (lower_step(part_of(boost::hana::at_c<I>(m.children), step.part), to, step, local,
                        local_count, start.with(table.starts[step.number()])),
             true)) ||
           ...));
    }
    if constexpr (is_choice_module<M>()) to.arm = outer;
  }
  value_list out;
  int observed = 0;
  for (; out.count < w.output_count; ++out.count) {
    const int from = w.outputs[out.count];
    out.ids[out.count] = from < 0 ? to.take_watched(observed++, out, start.scope) : local[from];
  }
  return out;
}

// Apart, since a stack frame of each level of nesting would have the list.
template <composite_module M>
constexpr value_list lower_observed(const M& m, program_builder& to, const value_list& in,
                                    module_start start) {
  const watch_list outer = to.watched;
  to.watched = {M::observed_paths, start.scope, to.arm};
  const value_list out =
      lower_children(m, to, in, start, std::make_index_sequence<child_count<M>>{});
  to.watched = outer;
  return out;
}

template <composite_module M>
constexpr value_list lower(const M& m, program_builder& to, const value_list& in,
                           module_start start) {
  const std::size_t call = to.begin_call(M::kind, in, start.scope, input_names_of<M>());
  to.check_input_count(wiring_of<M>.inputs, in.count, start.scope);
  const int outer = to.enter_checkpoint(is_checkpoint<M>());
  value_list out;
  if constexpr (requires { M::observed_paths; })
    out = lower_observed(m, to, in, start);
  else
    out = lower_children(m, to, in, start, std::make_index_sequence<child_count<M>>{});
  to.checkpoint = outer;
  to.end_call(call, out);
  to.watch(start.scope, out);
  return out;
}

/// Lowers a whole network, whose input values already exist.
template <any_module M>
constexpr value_list lower_root(const M& m, program_builder& to, const value_list& in) {
  declare(m, to, to.add_scope(-1, nullptr, 0));
  return lower(m, to, in, {0, 0});
}

/// The sizes of a network with this many inputs.
template <any_module M>
constexpr program_builder count_network(std::size_t inputs) {
  program_builder to;
  value_list in;
  for (; in.count < inputs; ++in.count) in.ids[in.count] = to.add_value({});
  lower_root(M{}, to, in);
  return to;
}

}  // namespace ikebana::detail
