#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"

namespace ikebana {

/// A step of the lowered network: one call of one leaf.
struct program_node {
  int leaf = 0;
  int inputs[max_arity]{};  ///< Indices of values.
  std::size_t input_count = 0;
  int first_edge = 0;    ///< Edges number the inputs of all nodes.
  int first_output = 0;  ///< The first of the values that it defines.
  std::size_t output_count = 1;
  int first_saved = 0;
  std::size_t saved_count = 0;
  kept keeps = kept::both;
  leaf_role role{};
  bool is_view = false;
  view_map view{};
  int arm = -1;         ///< The alternative that contains it; -1 if it always runs.
  int choice = -1;      ///< The choice whose alternatives it joins; else -1.
  int checkpoint = -1;  ///< The checkpoint that contains it; else -1.
  /// Of its buffers, which it keeps for a repeated forward: that many saved tensors, after its own,
  /// have their values before forward, and as many more are scratch.
  std::size_t kept_buffers = 0;
  /// Where what it plans begins, in bytes; no_plan for a module without plan_bytes.
  static constexpr std::size_t no_plan = static_cast<std::size_t>(-1);
  std::size_t first_plan = no_plan;
};

/// A composition of which one alternative runs. Its arms are numbered from `first_arm` on.
struct program_choice {
  int scope = 0;
  int first_arm = 0;
  int alternatives = 0;
  int arm = -1;  ///< The arm that contains it.
};

/// An alternative.
struct program_arm {
  int choice = 0;
  int alternative = 0;
  int parent = -1;  ///< The arm that contains its choice.
};

/// A scope of names: a module within its parent. A path is the names from the root, joined by dots.
// No name is compared with null: under -fsanitize=undefined, g++ rejects that in a constant
// expression.
struct program_scope {
  int parent = -1;
  const char* name = nullptr;
  int index = 0;                ///< Its index among its siblings if that is its name; else -1.
  std::uint64_t path_hash = 0;  ///< Of the path, by hash_path.
  std::size_t path_size = 0;    ///< In characters.
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

/// The values that a module takes or returns.
struct value_list {
  int ids[max_arity]{};
  std::size_t count = 0;
};

/// One call of a module of the network, leaf or composition. Begin and end are counted on one
/// clock, in forward order.
struct program_call {
  int scope = 0;
  std::string_view kind{};
  int begin = 0, end = 0;
  int first_node = 0, end_node = 0;
  value_list inputs{}, outputs{};
  int arm = -1;
  std::span<const std::string_view> input_names{};  ///< Empty if the module does not name them.
};

/// The sizes of a network's tables; known from its type.
struct program_sizes {
  std::size_t nodes = 0, values = 0, edges = 0, leaves = 0, scopes = 0, parameters = 0, buffers = 0,
              saved = 0, choices = 0, arms = 0, frozen = 0, checkpoints = 0, plan_bytes = 0;
};

namespace detail {

/// The remaining characters of a path_text are for the name of a parameter.
inline constexpr std::size_t longest_path = 480;

[[gnu::cold]] constexpr path_text scope_path(const program_scope* scopes, int scope) {
  int chain[longest_path]{};
  std::size_t depth = 0;
  for (; scope > 0 && depth < longest_path; scope = scopes[scope].parent) chain[depth++] = scope;
  path_text path;
  std::size_t size = 0;
  const auto append = [&](std::string_view part) {
    for (std::size_t i = 0; i < part.size() && size + 1 < sizeof(path.data); ++i)
      path.data[size++] = part[i];
  };
  while (depth-- > 0) {
    const program_scope& s = scopes[chain[depth]];
    if (size > 0) append(".");
    if (s.index < 0)
      append(std::string_view{s.name});
    else
      append(text<24>{}.append(static_cast<dim_t>(s.index)).view());
  }
  return path;
}

}  // namespace detail

/// A program of any size through pointers to its tables, for code that should not be instantiated
/// per network.
struct program_view {
  program_sizes n{};
  const program_node* nodes = nullptr;
  const shape* values = nullptr;
  const program_leaf* leaves = nullptr;
  const program_scope* scopes = nullptr;
  const program_parameter* parameters = nullptr;
  const program_buffer* buffers = nullptr;
  const program_saved* saved = nullptr;
  const element_kind* kinds = nullptr;
  const program_choice* choices = nullptr;
  const program_arm* arms = nullptr;
  const int* outputs = nullptr;
  std::size_t output_count = 0;

  constexpr const shape& output(std::size_t i = 0) const { return values[outputs[i]]; }
  constexpr path_text path(const program_leaf& leaf) const {
    return detail::scope_path(scopes, leaf.scope);
  }
  [[gnu::cold]] constexpr path_text path(const program_leaf& leaf, const char* name) const {
    path_text p = path(leaf);
    if (!p.empty()) p.append(".");
    return p.append(std::string_view{name});
  }
  constexpr path_text path(const program_choice& c) const {
    return detail::scope_path(scopes, c.scope);
  }
  constexpr path_text path(const program_parameter& p) const {
    return path(leaves[p.leaf], p.spec.name);
  }
  constexpr path_text path(const program_buffer& b) const {
    return path(leaves[b.leaf], b.spec.name);
  }
};

/// A table with at least one element, so that loops over an empty one can still name an element.
template <class X, std::size_t N>
using program_table = std::array<X, N == 0 ? 1 : N>;

/// A network in flat form: nodes in forward order, the shape of every value, the leaves with their
/// parameters and buffers, all in PyTorch's order. A constant expression for static shapes;
/// otherwise the same function fills it in at run time.
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

  constexpr program_view view() const {
    return {N,
            nodes.data(),
            values.data(),
            leaves.data(),
            scopes.data(),
            parameters.data(),
            buffers.data(),
            saved.data(),
            kinds.data(),
            choices.data(),
            arms.data(),
            outputs,
            output_count};
  }
  /// The path of a leaf, a choice, a parameter or a buffer.
  constexpr path_text path(const auto& of) const { return view().path(of); }
  constexpr path_text path(const program_leaf& leaf, const char* name) const {
    return view().path(leaf, name);
  }
  constexpr const shape& output(std::size_t i = 0) const {
    return values[static_cast<std::size_t>(outputs[i])];
  }
};

}  // namespace ikebana
