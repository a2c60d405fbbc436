#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana::detail {

/// The error of a composition that is given another number of values than it takes.
[[gnu::cold]] constexpr diagnostic wrong_input_count(int expected, std::size_t got) {
  return {
      expected == 1
          ? "a composition takes 1 input, got {got}: concat, add and mul make one value of several"
          : "a composition takes {expected} inputs, got {got}",
      expected, static_cast<dim_t>(got)};
}

/// The modules whose outputs are asked for, by their paths within a scope.
struct watch_list {
  std::span<const std::string_view> paths{};
  int scope = 0;
  int arm = -1;  ///< That of the scope.
  int values[max_arity]{};
};

/// Writes a network as a flat program while inferring every shape. Not a template, so that code
/// that visits leaves is instantiated per leaf only. With null tables it only counts.
struct program_builder {
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
  int arm = -1;                   ///< The arm being lowered.
  int choice = -1;                ///< The choice whose alternatives are being joined.
  int checkpoint = -1;            ///< The checkpoint being lowered.
  program_call* calls = nullptr;  ///< Null if calls are not recorded.
  std::size_t call_count = 0;
  int clock = 0;              ///< Counts the begins and ends of calls.
  std::size_t inputs = 0;     ///< The number of values that the caller passes.
  watch_list watched{};       ///< What an `observe` around the modules being lowered asks for.
  bool claimed[max_arity]{};  ///< Per input: a module has declared its element kind.
  dim_t elements = 0;         ///< Of all tensors so far whose extents are static.
  diagnostic error{};

  constexpr bool counting() const { return nodes == nullptr; }

  constexpr int add_scope(int parent, const char* name, int index) {
    if (!counting()) scopes[n.scopes] = make_scope(parent, name, index);
    return static_cast<int>(n.scopes++);
  }
  /// Continues the hash of the parent's path: hashing whole paths would take time proportional to
  /// the square of the depth, and clang limits the steps of a constant expression.
  [[gnu::cold]] constexpr program_scope make_scope(int parent, const char* name, int index) const;
  /// Declares that value v has elements of this kind.
  constexpr void claim(int v, element_kind kind, std::size_t input, int scope);
  constexpr int add_value(const shape& s) {
    if (!counting()) values[n.values] = s;
    return static_cast<int>(n.values++);
  }
  /// Enters a module, which may be a checkpoint; one within another is a part of it. Returns what
  /// `checkpoint` must be set to after it.
  constexpr int enter_checkpoint(bool is_checkpoint) {
    const int outer = checkpoint;
    if (is_checkpoint && outer < 0) checkpoint = static_cast<int>(n.checkpoints++);
    return outer;
  }
  constexpr std::size_t begin_call(std::string_view kind, const value_list& in, int scope,
                                   std::span<const std::string_view> input_names) {
    if (calls != nullptr)
      calls[call_count] = {scope, kind, clock++, 0,   static_cast<int>(n.nodes),
                           0,     in,   {},      arm, input_names};
    return call_count++;
  }
  constexpr void end_call(std::size_t call, const value_list& out) {
    if (calls == nullptr) return;
    calls[call].end = clock++;
    calls[call].end_node = static_cast<int>(n.nodes);
    calls[call].outputs = out;
  }
  /// Records the first output of the module of this scope if it is asked for.
  constexpr void watch(int scope, const value_list& out) {
    if (watched.paths.empty() || counting()) return;
    for (std::size_t i = 0; i < watched.paths.size(); ++i) {
      const program_scope& base = scopes[watched.scope];
      std::uint64_t hash = base.path_hash;
      if (base.path_size > 0) hash = hash_path(".", hash);
      if (scopes[scope].path_hash != hash_path(watched.paths[i], hash)) continue;
      watched.values[i] = out.ids[0];
      if (arm != watched.arm && error.ok())
        refuse({"is observed, but belongs to an alternative, which may not run"}, scope);
    }
  }
  /// The value of the nth module that is watched, an output beside the others.
  constexpr int take_watched(int nth, const value_list& others, int scope) {
    const int value = watched.values[nth];
    // The gradients of two outputs would be in the same memory.
    if (!counting() && error.ok())
      for (std::size_t i = 0; i < others.count; ++i)
        if (others.ids[i] == value)
          refuse({"an observed value is an output of the network already"}, scope);
    return value;
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
  /// Adds a node that calls a leaf with these inputs and output shapes.
  [[gnu::cold]] constexpr program_node& add_node(int leaf, const value_list& in,
                                                 const shape_list& shapes, value_list& out);
  /// Adds the tensors in which the node being added keeps the buffers of this leaf.
  [[gnu::cold]] constexpr void keep_buffers(int leaf);
  [[gnu::cold]] constexpr void refuse(const diagnostic& why, int scope);
  [[gnu::cold]] constexpr void check_input_count(int expected, std::size_t got, int scope);
  /// Adds the elements of a tensor to `elements`. Refuses a network with more than max_elements, so
  /// that no later sum or product of extents or bytes overflows.
  [[gnu::cold]] constexpr void add_elements(const shape& s, int scope);
  constexpr int choice_at(int scope) const {
    int c = 0;
    if (!counting())
      while (choices[c].scope != scope) ++c;
    return c;
  }
  /// Enters child i of a choice that is contained in the arm `outer`.
  constexpr void enter_child(int of, int i, int outer) {
    if (counting()) return;
    const bool is_alternative = i < choices[of].alternatives;
    arm = is_alternative ? choices[of].first_arm + i : outer;
    choice = is_alternative ? -1 : of;
  }
};

constexpr void program_builder::claim(int v, element_kind kind, std::size_t input, int scope) {
  const auto value = static_cast<std::size_t>(v);
  const bool given = value < inputs;
  if (given && !claimed[value]) {
    claimed[value] = true;
    kinds[value] = kind;
  }
  if (kinds[value] == kind || !error.ok()) return;
  constexpr const char* wants[] = {
      "expects elements of the model's type as input {expected}, got indices or a mask",
      "expects indices (std::int64_t) as input {expected}, got a value of another type",
      "expects a mask (bool) as input {expected}, got a value of another type"};
  error = {wants[static_cast<std::size_t>(kind)],
           static_cast<dim_t>(input),
           0,
           {},
           {},
           scope_path(scopes, scope)};
}

constexpr void program_builder::refuse(const diagnostic& why, int scope) {
  error = why;
  error.path = scope_path(scopes, scope);
}

constexpr void program_builder::keep_buffers(int leaf) {
  const program_leaf& l = leaves[leaf];
  for (std::size_t i = 0; i < 2 * l.buffer_count; ++i) {
    const std::size_t b = static_cast<std::size_t>(l.first_buffer) + i % l.buffer_count;
    const buffer_spec& spec = buffers[b].spec;
    const std::size_t size = spec.follows_model ? 0 : size_of(spec.type);
    saved[n.saved++] = {static_cast<int>(n.nodes), {size, spec.extents}};
  }
}

constexpr void program_builder::check_input_count(int expected, std::size_t got, int scope) {
  if (!error.ok() || got == static_cast<std::size_t>(expected)) return;
  const diagnostic why = wrong_input_count(expected, got);
  if (counting())
    error = why;
  else
    refuse(why, scope);
}

constexpr void program_builder::add_elements(const shape& s, int scope) {
  if (!error.ok()) return;
  const bool is_countable = s.is_countable();
  if (is_countable && s.is_static()) elements += s.numel();
  if (!is_countable || elements > shape::max_elements)
    refuse({"with a tensor of shape {input}, the network has more than 2^56 elements", 0, 0, s},
           scope);
}

constexpr program_scope program_builder::make_scope(int parent, const char* name, int index) const {
  program_scope s{parent, name, index, seed{}.path, 0};
  if (parent < 0) return s;
  const auto append = [&s](std::string_view part) {
    s.path_hash = hash_path(part, s.path_hash);
    s.path_size += part.size();
  };
  s.path_hash = scopes[parent].path_hash;
  s.path_size = scopes[parent].path_size;
  if (s.path_size > 0) append(".");
  if (index < 0)
    append(std::string_view{name});
  else
    append(text<24>{}.append(static_cast<dim_t>(index)).view());
  return s;
}

/// What all leaves share is not a template, and is cold: it runs rarely and is compiled everywhere.
constexpr int program_builder::add_leaf(std::string_view kind, std::size_t parameter_count,
                                        std::size_t buffer_count, int scope) {
  const int leaf = static_cast<int>(n.leaves++);
  if (counting()) return leaf;
  // Truncated paths of two leaves could be equal, and paths identify parameters.
  if (error.ok() && scopes[scope].path_size > longest_path)
    refuse({"the path of a module has at most {expected} characters",
            static_cast<dim_t>(longest_path)},
           scope);
  leaves[leaf] = {scope,
                  kind,
                  scopes[scope].path_hash,
                  static_cast<int>(n.parameters),
                  parameter_count,
                  static_cast<int>(n.buffers),
                  buffer_count};
  return leaf;
}

constexpr program_node& program_builder::add_node(int leaf, const value_list& in,
                                                  const shape_list& shapes, value_list& out) {
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
  node.checkpoint = checkpoint;
  node.first_saved = static_cast<int>(n.saved);
  return node;
}

}  // namespace ikebana::detail
