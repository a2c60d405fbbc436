#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"

namespace ikebana {

/// A step of the lowered network: one call of one leaf.
struct program_node {
  int leaf = 0;
  int inputs[max_arity]{};  ///< Values.
  std::size_t input_count = 0;
  int first_edge = 0;    ///< Edges number the inputs of all nodes.
  int first_output = 0;  ///< The first of the values it defines.
  std::size_t output_count = 1;
  int first_saved = 0;
  std::size_t saved_count = 0;
  kept keeps = kept::both;
  leaf_role role{};
  bool is_view = false;
  int arm = -1;     ///< The alternative that it stands in; -1 where it always runs.
  int choice = -1;  ///< The choice whose alternatives it joins; else -1.
};

/// A composition of which one alternative runs. Its arms are numbered from `first_arm` on.
struct program_choice {
  int scope = 0;
  int first_arm = 0;
  int alternatives = 0;
  int arm = -1;  ///< That it stands in itself.
};

/// An alternative.
struct program_arm {
  int choice = 0;
  int alternative = 0;
  int parent = -1;  ///< The arm around its choice.
};

/// A scope of names: a module in its parent. A path is the names from the root, joined by dots.
// Nothing asks whether a name is null: under -fsanitize=undefined, g++ takes that for no constant.
struct program_scope {
  int parent = -1;
  const char* name = nullptr;
  int index = 0;  ///< Among its siblings, where that is its name; else -1.
};

struct program_leaf {
  int scope = 0;
  std::string_view kind{};
  std::uint64_t path_hash = 0;
  int first_parameter = 0;
  std::size_t parameter_count = 0;
  int first_buffer = 0;
  std::size_t buffer_count = 0;
};

struct program_parameter {
  int leaf = 0;
  parameter_spec spec{};
};

struct program_buffer {
  int leaf = 0;
  buffer_spec spec{};
};

struct program_saved {
  int node = 0;
  saved_spec spec{};
};

/// The values that a module takes or gives.
struct value_list {
  int ids[max_arity]{};
  std::size_t count = 0;
};

/// One call of a module of the network, leaf or composition. Beginnings and ends are counted
/// together, in the order of forward.
struct program_call {
  int scope = 0;
  std::string_view kind{};
  int begin = 0, end = 0;
  int first_node = 0, end_node = 0;
  value_list inputs{}, outputs{};
  int arm = -1;
};

/// How much of each a network has; known from its type.
struct program_sizes {
  std::size_t nodes = 0, values = 0, edges = 0, leaves = 0, scopes = 0, parameters = 0, buffers = 0,
              saved = 0, choices = 0, arms = 0;
};

namespace detail {

/// Writes a network down as a flat program while it infers every shape. Non-template, so that the
/// code that runs over leaves is named on the leaf alone. With null tables it only counts.
struct lowering {
  program_sizes n{};
  program_node* nodes = nullptr;
  shape* values = nullptr;
  program_leaf* leaves = nullptr;
  program_scope* scopes = nullptr;
  program_parameter* parameters = nullptr;
  program_buffer* buffers = nullptr;
  program_saved* saved = nullptr;
  element_kind* kinds = nullptr;
  program_choice* choices = nullptr;
  program_arm* arms = nullptr;
  int arm = -1;                   ///< Of what is written down now.
  int choice = -1;                ///< Whose alternatives are joined now.
  program_call* calls = nullptr;  ///< Null where nobody asks for them.
  std::size_t call_count = 0;
  int clock = 0;              ///< Of the beginnings and ends of calls.
  std::size_t inputs = 0;     ///< The values that the caller gives.
  bool claimed[max_arity]{};  ///< By input: a module has said what its elements are.
  diagnostic error{};

  constexpr bool counting() const { return nodes == nullptr; }

  constexpr int add_scope(int parent, const char* name, int index) {
    if (!counting()) scopes[n.scopes] = {parent, name, index};
    return static_cast<int>(n.scopes++);
  }
  /// Notes that value v is to have elements of this kind.
  constexpr void claim(int v, element_kind kind, std::size_t input, int scope);
  constexpr int add_value(const shape& s) {
    if (!counting()) values[n.values] = s;
    return static_cast<int>(n.values++);
  }
  constexpr std::size_t begin_call(std::string_view kind, const value_list& in, int scope) {
    if (calls != nullptr)
      calls[call_count] = {scope, kind, clock++, 0, static_cast<int>(n.nodes), 0, in, {}, arm};
    return call_count++;
  }
  constexpr void end_call(std::size_t call, const value_list& out) {
    if (calls == nullptr) return;
    calls[call].end = clock++;
    calls[call].end_node = static_cast<int>(n.nodes);
    calls[call].outputs = out;
  }
  constexpr int add_choice(int scope, int alternatives) {
    const auto first = static_cast<int>(n.arms), added = static_cast<int>(n.choices++);
    n.arms += static_cast<std::size_t>(alternatives);
    if (counting()) return added;
    choices[added] = {scope, first, alternatives, arm};
    for (int a = 0; a < alternatives; ++a) arms[first + a] = {added, a, arm};
    return added;
  }
  [[gnu::cold]] constexpr int add_leaf(std::string_view kind, std::size_t parameter_count,
                                       std::size_t buffer_count, int scope);
  /// A node of a leaf with these inputs and shapes of outputs.
  [[gnu::cold]] constexpr program_node& add_node(int leaf, const value_list& in,
                                                 const shape_list& shapes, value_list& out);
  [[gnu::cold]] constexpr void refuse(const diagnostic& why, int scope);
  constexpr int choice_at(int scope) const {
    int c = 0;
    if (!counting())
      while (choices[c].scope != scope) ++c;
    return c;
  }
  /// What follows is child i of a choice that stands in the arm `outer`.
  constexpr void enter_child(int of, int i, int outer) {
    if (counting()) return;
    const bool is_alternative = i < choices[of].alternatives;
    arm = is_alternative ? choices[of].first_arm + i : outer;
    choice = is_alternative ? -1 : of;
  }
};

/// Whether M runs one of its children, of which the last one joins the others.
template <class M>
constexpr bool is_choice_module() {
  return requires { M::is_choice; };
}

/// The rest of a path_text is for the name of a parameter.
inline constexpr std::size_t longest_path = 100;

[[gnu::cold]] constexpr path_text scope_path(const program_scope* scopes, int scope) {
  int chain[longest_path]{};
  std::size_t depth = 0;
  for (; scope > 0 && depth < longest_path; scope = scopes[scope].parent) chain[depth++] = scope;
  path_text path;
  while (depth-- > 0) {
    const program_scope& s = scopes[chain[depth]];
    if (!path.empty()) path.append(".");
    if (s.index < 0)
      path.append(std::string_view{s.name});
    else
      path.append(static_cast<dim_t>(s.index));
  }
  return path;
}

constexpr void lowering::claim(int v, element_kind kind, std::size_t input, int scope) {
  const auto value = static_cast<std::size_t>(v);
  const bool given = value < inputs;
  if (given && !claimed[value]) {
    claimed[value] = true;
    kinds[value] = kind;
  }
  if (kinds[value] == kind || !error.ok()) return;
  constexpr const char* wants[] = {
      "expects numbers of the model's type as input {expected}, got what is used otherwise too",
      "expects indices (std::int64_t) as input {expected}, got what is not only that",
      "expects truth values (bool) as input {expected}, got what is not only that"};
  error = {wants[static_cast<std::size_t>(kind)],
           static_cast<dim_t>(input),
           0,
           {},
           {},
           scope_path(scopes, scope)};
}

constexpr void lowering::refuse(const diagnostic& why, int scope) {
  error = why;
  error.path = scope_path(scopes, scope);
}

/// What is the same for all leaves is no template, and cold: few programs spend time here, and all
/// are compiled.
constexpr int lowering::add_leaf(std::string_view kind, std::size_t parameter_count,
                                 std::size_t buffer_count, int scope) {
  const int leaf = static_cast<int>(n.leaves++);
  path_text path;
  if (!counting()) path = scope_path(scopes, scope);
  // What is cut could be the same for two leaves, and parameters are told apart by their paths.
  if (error.ok() && path.size() > longest_path)
    error = {"the path of a module has at most {expected} characters",
             static_cast<dim_t>(longest_path),
             0,
             {},
             {},
             path};
  if (!counting())
    leaves[leaf] = {scope,
                    kind,
                    hash_path(path.view()),
                    static_cast<int>(n.parameters),
                    parameter_count,
                    static_cast<int>(n.buffers),
                    buffer_count};
  return leaf;
}

constexpr program_node& lowering::add_node(int leaf, const value_list& in, const shape_list& shapes,
                                           value_list& out) {
  program_node& node = nodes[n.nodes];
  node.leaf = leaf;
  for (std::size_t i = 0; i < in.count; ++i) node.inputs[i] = in.ids[i];
  node.input_count = in.count;
  node.first_edge = static_cast<int>(n.edges);
  n.edges += in.count;
  node.first_output = static_cast<int>(n.values);
  node.output_count = out.count;
  for (std::size_t i = 0; i < out.count; ++i) out.ids[i] = add_value(shapes[i]);
  node.arm = arm;
  node.first_saved = static_cast<int>(n.saved);
  return node;
}

template <leaf_module M>
constexpr int lower_new_leaf(const M& m, lowering& l, int scope) {
  const int leaf = l.add_leaf(M::kind, parameter_count<M>(), buffer_count<M>(), scope);
  if constexpr (parameter_count<M>() > 0) {
    if (!l.counting())
      for (const parameter_spec& p : m.parameters()) l.parameters[l.n.parameters++] = {leaf, p};
    else
      l.n.parameters += parameter_count<M>();
  }
  if constexpr (buffer_count<M>() > 0) {
    if (!l.counting())
      for (const buffer_spec& b : m.buffers()) l.buffers[l.n.buffers++] = {leaf, b};
    else
      l.n.buffers += buffer_count<M>();
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
[[gnu::cold, gnu::noinline]] constexpr void declare(const M& m, lowering& l, int scope) {
  lower_new_leaf(m, l, scope);
}

template <composite_module M>
constexpr void declare(const M& m, lowering& l, int scope);

template <class C>
[[gnu::cold, gnu::noinline]] constexpr void declare_child(const C& child, int index, lowering& l,
                                                          int scope) {
  declare(module_of(child), l, l.add_scope(scope, name_of<C>(), is_named<C> ? -1 : index));
}

/// Writes down the leaves with their parameters and buffers, depth first in the order of children:
/// so do PyTorch's state dicts.
template <composite_module M>
constexpr void declare(const M& m, lowering& l, int scope) {
  boost::hana::unpack(m.children, [&](const auto&... child) {
    int i = 0;
    if constexpr (is_choice_module<M>()) {
      const int outer = l.arm;
      const int choice = l.add_choice(scope, static_cast<int>(sizeof...(child)) - 1);
      ((l.enter_child(choice, i, outer), declare_child(child, i++, l, scope)), ...);
      l.arm = outer;
    } else {
      (declare_child(child, i++, l, scope), ...);
    }
  });
}

/// Where the leaves and scopes of a module begin.
struct module_place {
  int leaf = 0;
  int scope = 0;
};

template <leaf_module M>
[[gnu::cold, gnu::noinline]] constexpr value_list lower(const M& m, lowering& l,
                                                        const value_list& in, module_place place) {
  const auto [leaf, scope] = place;
  const std::size_t call = l.begin_call(M::kind, in, scope);
  value_list out;
  out.count = output_count<M>();
  if (l.counting()) {
    for (std::size_t i = 0; i < out.count; ++i) out.ids[i] = l.add_value({});
    l.n.edges += in.count;
    l.n.saved += saved_count<M>();
    ++l.n.nodes;
    return out;
  }
  shape_list shapes;
  for (std::size_t i = 0; i < in.count; ++i) {
    shapes.push_back(l.values[in.ids[i]]);
    l.claim(in.ids[i], input_kind_of<M>(i, in.count), i, scope);
  }
  shape_list inferred_shapes;
  if (l.error.ok()) {
    const inferred r = infer_leaf(m, shapes);
    if (r.ok())
      inferred_shapes = r.outputs;
    else
      l.refuse(r.error, scope);
  }
  program_node& node = l.add_node(leaf, in, inferred_shapes, out);
  node.keeps = keeps_of<M>();
  node.role = role_of(m);
  node.is_view = is_view_module<M>();
  if constexpr (requires { M::joins_alternatives; }) node.choice = l.choice;
  node.saved_count = saved_count<M>();
  if constexpr (saved_count<M>() > 0) {
    if (l.error.ok())
      for (const saved_spec& s : m.saved(shapes))
        l.saved[l.n.saved++] = {static_cast<int>(l.n.nodes), s};
    else
      l.n.saved += saved_count<M>();
  }
  ++l.n.nodes;
  l.end_call(call, out);
  return out;
}

template <composite_module M>
constexpr value_list lower(const M& m, lowering& l, const value_list& in, module_place place);

/// Not inlined: of a network of many equal children, the code of one is enough.
template <class C, class Step>
[[gnu::cold, gnu::noinline]] constexpr void lower_step(const C& child, lowering& l,
                                                       const Step& step, int* local,
                                                       int& local_count, module_place place) {
  value_list in;
  for (; in.count < step.input_count; ++in.count) in.ids[in.count] = local[step.inputs[in.count]];
  const value_list out = lower(module_of(child), l, in, place);
  for (std::size_t i = 0; i < out.count; ++i) local[local_count++] = out.ids[i];
}

template <composite_module M>
constexpr value_list lower(const M& m, lowering& l, const value_list& in, module_place place) {
  constexpr auto w = M::wiring();
  const std::size_t call = l.begin_call(M::kind, in, place.scope);
  return boost::hana::unpack(m.children, [&]<class... C>(const C&... child) {
    constexpr std::size_t children = sizeof...(child);
    constexpr std::size_t most_values = max_arity * (w.size() + 1);
    int local[most_values]{};
    int local_count = 0;
    if (l.error.ok() && in.count != static_cast<std::size_t>(w.inputs)) {
      l.error = diagnostic{"a composition takes {expected} inputs, got {got}", w.inputs,
                           static_cast<dim_t>(in.count)};
      if (!l.counting()) l.error.path = scope_path(l.scopes, place.scope);
    }
    for (int i = 0; i < w.inputs; ++i) local[local_count++] = in.ids[i];
    constexpr module_counts counts[children + 1]{count_modules<typename unwrap_named<C>::type>()...,
                                                 {}};
    module_place places[children + 1]{};
    places[0] = {place.leaf, place.scope + 1};
    for (std::size_t c = 0; c < children; ++c)
      places[c + 1] = {places[c].leaf + counts[c].leaves, places[c].scope + 1 + counts[c].scopes};
    if constexpr (is_choice_module<M>()) {
      const int outer = l.arm, choice = l.choice_at(place.scope);
      for (std::size_t s = 0; s < w.size(); ++s) {
        int i = 0;
        ((i == w.steps[s].child ? (l.enter_child(choice, i, outer),
                                   lower_step(child, l, w.steps[s], local, local_count, places[i]))
                                : void(),
          ++i),
         ...);
      }
      l.arm = outer;
    } else if constexpr (w.in_order(children)) {
      int i = 0;
      ((lower_step(child, l, w.steps[i], local, local_count, places[i]), ++i), ...);
    } else {
      for (std::size_t s = 0; s < w.size(); ++s) {
        int i = 0;
        ((i == w.steps[s].child ? lower_step(child, l, w.steps[s], local, local_count, places[i])
                                : void(),
          ++i),
         ...);
      }
    }
    value_list out;
    for (; out.count < w.output_count; ++out.count)
      out.ids[out.count] = local[w.outputs[out.count]];
    l.end_call(call, out);
    return out;
  });
}

/// Writes down a whole network, whose input values are there.
template <any_module M>
constexpr value_list lower_root(const M& m, lowering& l, const value_list& in) {
  declare(m, l, l.add_scope(-1, nullptr, 0));
  return lower(m, l, in, {0, 0});
}

/// What a network with this many inputs comes to.
template <any_module M>
constexpr lowering count_network(std::size_t inputs) {
  lowering l;
  value_list in;
  for (; in.count < inputs; ++in.count) in.ids[in.count] = l.add_value({});
  lower_root(M{}, l, in);
  return l;
}

}  // namespace detail

/// How much of each table the lowered form of M has, for `inputs` input values.
template <any_module M>
constexpr program_sizes sizes_of(std::size_t inputs) {
  return detail::count_network<M>(inputs).n;
}

/// A table with a place even where it has no entry: what loops over none of them can still name
/// one.
template <class X, std::size_t N>
using program_table = std::array<X, N == 0 ? 1 : N>;

/// A network written down flat: nodes in the order of forward, the shape of every value, the leaves
/// with their parameters and buffers, all in the order in which PyTorch names them. A constant
/// expression for static shapes; the same function fills it in at run time where shapes are known
/// only then.
template <program_sizes N>
struct program {
  static constexpr program_sizes sizes = N;
  program_table<program_node, N.nodes> nodes{};
  program_table<shape, N.values> values{};
  program_table<program_leaf, N.leaves> leaves{};
  program_table<program_scope, N.scopes> scopes{};
  program_table<program_parameter, N.parameters> parameters{};
  program_table<program_buffer, N.buffers> buffers{};
  program_table<program_saved, N.saved> saved{};
  program_table<element_kind, N.values> kinds{};
  program_table<program_choice, N.choices> choices{};
  program_table<program_arm, N.arms> arms{};
  int outputs[max_arity]{};
  std::size_t output_count = 0;
  diagnostic error{};

  constexpr std::span<const program_node> all_nodes() const { return {nodes.data(), N.nodes}; }
  constexpr std::span<const program_leaf> all_leaves() const { return {leaves.data(), N.leaves}; }
  constexpr std::span<const program_parameter> all_parameters() const {
    return {parameters.data(), N.parameters};
  }
  constexpr std::span<const program_buffer> all_buffers() const {
    return {buffers.data(), N.buffers};
  }

  constexpr path_text path(const program_leaf& leaf) const {
    return detail::scope_path(scopes.data(), leaf.scope);
  }
  constexpr path_text path(const program_leaf& leaf, const char* name) const {
    path_text p = path(leaf);
    if (!p.empty()) p.append(".");
    return p.append(std::string_view{name});
  }
  constexpr path_text path(const program_choice& c) const {
    return detail::scope_path(scopes.data(), c.scope);
  }
  constexpr path_text path(const program_parameter& p) const {
    return path(leaves[static_cast<std::size_t>(p.leaf)], p.spec.name);
  }
  constexpr path_text path(const program_buffer& b) const {
    return path(leaves[static_cast<std::size_t>(b.leaf)], b.spec.name);
  }
  constexpr const shape& output(std::size_t i = 0) const {
    return values[static_cast<std::size_t>(outputs[i])];
  }
};

/// How often the modules of M are called in one forward, for `inputs` input values.
template <any_module M>
constexpr std::size_t count_calls(std::size_t inputs) {
  return detail::count_network<M>(inputs).call_count;
}

/// Writes the program of m for inputs of these shapes to p. `p.error` then says what is wrong with
/// them, with the path. `calls`, where it is not null, has room for count_calls. O(nodes); does not
/// allocate.
template <program_sizes N, any_module M>
constexpr void lower_into(program<N>& p, const M& m, const shape_list& inputs,
                          program_call* calls = nullptr, const diagnostic& known_error = {}) {
  detail::lowering l;
  l.calls = calls;
  l.error = known_error;
  l.nodes = p.nodes.data();
  l.values = p.values.data();
  l.leaves = p.leaves.data();
  l.scopes = p.scopes.data();
  l.parameters = p.parameters.data();
  l.buffers = p.buffers.data();
  l.saved = p.saved.data();
  l.kinds = p.kinds.data();
  l.choices = p.choices.data();
  l.arms = p.arms.data();
  l.inputs = inputs.size();
  value_list in;
  for (std::size_t i = 0; i < inputs.size(); ++i) in.ids[in.count++] = l.add_value(inputs[i]);
  const value_list out = detail::lower_root(m, l, in);
  for (p.output_count = 0; p.output_count < out.count; ++p.output_count)
    p.outputs[p.output_count] = out.ids[p.output_count];
  p.error = l.error;
}

/// The same as a value, for constant expressions.
template <program_sizes N, any_module M>
constexpr program<N> lower(const M& m, const shape_list& inputs) {
  program<N> p;
  lower_into(p, m, inputs);
  return p;
}

/// How many inputs a module takes, as far as that can be told without them: a leaf may take more.
template <any_module M>
constexpr std::size_t input_count_of() {
  if constexpr (composite_module<M>)
    return static_cast<std::size_t>(M::wiring().inputs);
  else
    return 1;
}

/// The program of m without any shapes: its modules, their paths and parameters.
template <any_module M>
constexpr auto outline(const M& m) {
  constexpr std::size_t inputs = input_count_of<M>();
  program<sizes_of<M>(inputs)> p;
  shape_list unknown;
  while (unknown.size() < inputs) unknown.push_back({});
  // What is wrong already is not looked for.
  lower_into(p, m, unknown, nullptr, {"no shapes are given"});
  return p;
}

/// The output shapes of m for inputs of these shapes, or the diagnostic with the path of the module
/// that refuses them.
template <any_module M>
constexpr inferred infer(const M& m, const shape_list& inputs) {
  if constexpr (composite_module<M>) {
    constexpr program_sizes n = sizes_of<M>(static_cast<std::size_t>(M::wiring().inputs));
    const program<n> p = lower<n>(m, inputs);
    if (!p.error.ok()) return p.error;
    shape_list out;
    for (std::size_t i = 0; i < p.output_count; ++i) out.push_back(p.output(i));
    return out;
  } else {
    return detail::infer_leaf(m, inputs);
  }
}

}  // namespace ikebana
