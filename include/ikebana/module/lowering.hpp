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
  bool is_view = false;
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

/// How much of each a network has; known from its type.
struct program_sizes {
  std::size_t nodes = 0, values = 0, edges = 0, leaves = 0, scopes = 0, parameters = 0, buffers = 0,
              saved = 0;
};

namespace detail {

struct value_list {
  int ids[max_arity]{};
  std::size_t count = 0;
};

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
  diagnostic error{};

  constexpr bool counting() const { return nodes == nullptr; }

  constexpr int add_scope(int parent, const char* name, int index) {
    if (!counting()) scopes[n.scopes] = {parent, name, index};
    return static_cast<int>(n.scopes++);
  }
  constexpr int add_value(const shape& s) {
    if (!counting()) values[n.values] = s;
    return static_cast<int>(n.values++);
  }
};

/// The rest of a path_text is for the name of a parameter.
inline constexpr std::size_t longest_path = 100;

constexpr path_text scope_path(const program_scope* scopes, int scope) {
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

template <leaf_module M>
constexpr int lower_new_leaf(const M& m, lowering& l, int scope) {
  const int leaf = static_cast<int>(l.n.leaves++);
  path_text path;
  if (!l.counting()) path = scope_path(l.scopes, scope);
  // What is cut could be the same for two leaves, and parameters are told apart by their paths.
  if (l.error.ok() && path.size() > longest_path)
    l.error = {"the path of a module has at most {expected} characters",
               static_cast<dim_t>(longest_path),
               0,
               {},
               {},
               path};
  if (!l.counting())
    l.leaves[leaf] = {scope,
                      M::kind,
                      hash_path(path.view()),
                      static_cast<int>(l.n.parameters),
                      parameter_count<M>(),
                      static_cast<int>(l.n.buffers),
                      buffer_count<M>()};
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

template <class M>
constexpr std::size_t count_leaves(const M& m) {
  if constexpr (composite_module<M>)
    return boost::hana::unpack(m.children, [](const auto&... c) {
      return (std::size_t{0} + ... + count_leaves(module_of(c)));
    });
  else
    return 1;
}

/// Where the leaves and scopes of a child that was already lowered begin: a child that runs twice
/// has them once.
struct lowered_child {
  int first_leaf = -1;
  int scope = -1;
};

template <leaf_module M>
[[gnu::noinline]] constexpr value_list lower(const M& m, lowering& l, const value_list& in,
                                             int scope, int known_leaf) {
  const int leaf = known_leaf >= 0 ? known_leaf : lower_new_leaf(m, l, scope);
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
  for (std::size_t i = 0; i < in.count; ++i) shapes.push_back(l.values[in.ids[i]]);
  shape_list inferred_shapes;
  if (l.error.ok()) {
    inferred r = infer_leaf(m, shapes);
    if (r.ok()) {
      inferred_shapes = r.outputs;
    } else {
      l.error = r.error;
      l.error.path = scope_path(l.scopes, scope);
    }
  }
  program_node& node = l.nodes[l.n.nodes];
  node.leaf = leaf;
  for (std::size_t i = 0; i < in.count; ++i) node.inputs[i] = in.ids[i];
  node.input_count = in.count;
  node.first_edge = static_cast<int>(l.n.edges);
  l.n.edges += in.count;
  node.first_output = static_cast<int>(l.n.values);
  node.output_count = out.count;
  for (std::size_t i = 0; i < out.count; ++i) out.ids[i] = l.add_value(inferred_shapes[i]);
  node.keeps = keeps_of<M>();
  node.is_view = is_view_module<M>();
  node.first_saved = static_cast<int>(l.n.saved);
  node.saved_count = saved_count<M>();
  if constexpr (saved_count<M>() > 0) {
    if (l.error.ok())
      for (const saved_spec& s : m.saved(shapes))
        l.saved[l.n.saved++] = {static_cast<int>(l.n.nodes), s};
    else
      l.n.saved += saved_count<M>();
  }
  ++l.n.nodes;
  return out;
}

template <composite_module M>
constexpr value_list lower(const M& m, lowering& l, const value_list& in, int scope,
                           int known_leaf);

/// Not inlined: of a network of many equal children, the code of one is enough.
template <class C, class Step>
[[gnu::noinline]] constexpr void lower_step(const C& child, int index, lowering& l,
                                            const Step& step, int* local, int& local_count,
                                            int scope, lowered_child& known) {
  value_list in;
  for (; in.count < step.input_count; ++in.count) in.ids[in.count] = local[step.inputs[in.count]];
  int known_leaf = known.first_leaf;
  if (known_leaf < 0) {
    known.first_leaf = static_cast<int>(l.n.leaves);
    known.scope = l.add_scope(scope, name_of<C>(), is_named<C> ? -1 : index);
  }
  const value_list out = lower(module_of(child), l, in, known.scope, known_leaf);
  for (std::size_t i = 0; i < out.count; ++i) local[local_count++] = out.ids[i];
}

template <composite_module M>
constexpr value_list lower(const M& m, lowering& l, const value_list& in, int scope,
                           int known_leaf) {
  constexpr auto w = M::wiring();
  return boost::hana::unpack(m.children, [&](const auto&... child) {
    constexpr std::size_t children = sizeof...(child);
    constexpr std::size_t most_values = max_arity * (w.size() + 1);
    int local[most_values]{};
    int local_count = 0;
    if (l.error.ok() && in.count != static_cast<std::size_t>(w.inputs)) {
      l.error = diagnostic{"a composition takes {expected} inputs, got {got}", w.inputs,
                           static_cast<dim_t>(in.count)};
      if (!l.counting()) l.error.path = scope_path(l.scopes, scope);
    }
    for (int i = 0; i < w.inputs; ++i) local[local_count++] = in.ids[i];
    lowered_child known[children + 1]{};
    if (known_leaf >= 0) {
      // This composition runs again: its children have the leaves they had, in the order of their
      // first steps.
      const std::size_t leaves[children + 1]{count_leaves(module_of(child))..., 0};
      int next = known_leaf;
      for (std::size_t s = 0; s < w.size(); ++s) {
        const auto c = static_cast<std::size_t>(w.steps[s].child);
        if (known[c].first_leaf >= 0) continue;
        known[c] = {next, scope};
        next += static_cast<int>(leaves[c]);
      }
    }
    if constexpr (w.in_order(children)) {
      int i = 0;
      ((lower_step(child, i, l, w.steps[i], local, local_count, scope, known[i]), ++i), ...);
    } else {
      for (std::size_t s = 0; s < w.size(); ++s) {
        int i = 0;
        ((i == w.steps[s].child
              ? lower_step(child, i, l, w.steps[s], local, local_count, scope, known[i])
              : void(),
          ++i),
         ...);
      }
    }
    value_list out;
    for (; out.count < w.output_count; ++out.count)
      out.ids[out.count] = local[w.outputs[out.count]];
    return out;
  });
}

}  // namespace detail

/// How much of each table the lowered form of M has, for `inputs` input values.
template <any_module M>
constexpr program_sizes sizes_of(std::size_t inputs) {
  detail::lowering l;
  detail::value_list in;
  for (; in.count < inputs; ++in.count) in.ids[in.count] = l.add_value({});
  l.add_scope(-1, nullptr, 0);
  detail::lower(M{}, l, in, 0, -1);
  return l.n;
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

/// Writes the program of m for inputs of these shapes to p. `p.error` then says what is wrong with
/// them, with the path. O(nodes); does not allocate.
template <program_sizes N, any_module M>
constexpr void lower_into(program<N>& p, const M& m, const shape_list& inputs) {
  detail::lowering l;
  l.nodes = p.nodes.data();
  l.values = p.values.data();
  l.leaves = p.leaves.data();
  l.scopes = p.scopes.data();
  l.parameters = p.parameters.data();
  l.buffers = p.buffers.data();
  l.saved = p.saved.data();
  detail::value_list in;
  for (std::size_t i = 0; i < inputs.size(); ++i) in.ids[in.count++] = l.add_value(inputs[i]);
  l.add_scope(-1, nullptr, 0);
  const detail::value_list out = detail::lower(m, l, in, 0, -1);
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
