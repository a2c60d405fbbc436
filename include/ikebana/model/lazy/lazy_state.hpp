#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/dependent.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/engine/engine.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/parameter.hpp"

namespace ikebana::detail {

/// Sets the extents of each leaf from the shapes of its own state.
struct bind_leaf_states {
  const program_node* nodes;
  const program_leaf* leaves;
  const shape* parameters;
  const shape* buffers;
  const char* is_there;  ///< By leaf: its state is complete.
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(Leaf& leaf) {
    const int l = nodes[k++].leaf;
    if constexpr (requires(std::span<const shape> s) { leaf.bind_state(s, s); }) {
      const program_leaf& own = leaves[l];
      if (is_there[l])
        leaf.bind_state(
            std::span<const shape>(parameters + own.first_parameter, own.parameter_count),
            std::span<const shape>(buffers + own.first_buffer, own.buffer_count));
    }
  }
};

/// Replaces every unknown extent by `lazy`, whatever it was computed from.
constexpr shape with_unknown_lazy(shape s) {
  for (std::size_t i = 0; i < s.rank(); ++i)
    if (s[i] < 0) s[i] = lazy;
  return s;
}

/// A parameter, or a persistent buffer, of a network that has no inputs yet.
struct state_row {
  path_text path, drawn_as, module;
  dtype type = dtype::float32;
  shape extents{};
  shape written{};  ///< The extents given by the module's type.
  std::size_t leaf = 0, index = 0;
  initializer init{};
  buffer_spec buffer{};
  int since = 1;
  bool is_buffer = false;
  bool waits = false;  ///< Its module is lazy, and it depends on the lazy dimension.
};

/// The rows of a program, leaf by leaf. `written` is the program of the module as written.
template <program_sizes N>
auto rows_of(const program<N>& p, const program<N>& written,
             const program_table<bool, N.leaves>& is_lazy, dtype element) {
  std::vector<dependent<state_row, program<N>>> rows;
  for (std::size_t l = 0; l < N.leaves; ++l) {
    const program_leaf& leaf = p.leaves[l];
    for (std::size_t i = 0; i < leaf.parameter_count; ++i) {
      const std::size_t at = static_cast<std::size_t>(leaf.first_parameter) + i;
      const parameter_spec& s = p.parameters[at].spec;
      const char* drawn = *s.drawn_as != '\0' ? s.drawn_as : s.name;
      rows.push_back({.path = p.path(leaf, s.name),
                      .drawn_as = p.path(leaf, drawn),
                      .module = p.path(leaf),
                      .type = element,
                      .extents = with_unknown_lazy(s.extents),
                      .written = written.parameters[at].spec.extents,
                      .leaf = l,
                      .index = at,
                      .init = s.init,
                      .since = s.since,
                      .waits = is_lazy[l]});
    }
    for (std::size_t i = 0; i < leaf.buffer_count; ++i) {
      const std::size_t at = static_cast<std::size_t>(leaf.first_buffer) + i;
      const buffer_spec& s = p.buffers[at].spec;
      const shape& as_written = written.buffers[at].spec.extents;
      if (s.persistent)
        rows.push_back({.path = p.path(leaf, s.name),
                        .drawn_as = p.path(leaf, *s.drawn_as != '\0' ? s.drawn_as : s.name),
                        .module = p.path(leaf),
                        .type = s.follows_model ? element : s.type,
                        .extents = with_unknown_lazy(s.extents),
                        .written = as_written,
                        .leaf = l,
                        .index = at,
                        .buffer = s,
                        .since = s.since,
                        .is_buffer = true,
                        .waits = is_lazy[l] && !as_written.is_static()});
    }
  }
  return rows;
}

/// Marks uninitialized entries and initialises the rest. `parameters` and `buffers` receive the
/// addresses.
template <class T, class Row>
state_dict initial_state(const std::vector<Row>& rows, seed s, T** parameters,
                         std::byte** buffers) {
  dependent<state_dict, T> dict;
  for (const Row& r : rows) {
    if (r.waits) {
      dict.add_uninitialized(r.path.view(), r.type, r.extents);
      continue;
    }
    const random_stream stream{s, hash_path(r.drawn_as.view(), s.path)};
    std::byte* to = dict.add_owned(r.path.view(), r.type, r.extents);
    if (r.is_buffer) {
      buffers[r.index] = to;
      fill_buffer<T>(r.buffer, stream, to);
    } else {
      parameters[r.index] = reinterpret_cast<T*>(to);
      r.init.template fill<T>(stream, parameters[r.index], r.extents);
    }
  }
  return dict;
}

/// The leaves whose complete state is given, and its extents.
///
/// A template, so that it is compiled only where it is used.
template <class Row>
struct given_extents {
  std::vector<dependent<shape, Row>> parameters, buffers;
  std::vector<dependent<char, Row>> is_there;

  given_extents(const std::vector<Row>& rows, const state_dict& given, program_sizes n)
      : parameters(n.parameters + 1), buffers(n.buffers + 1), is_there(n.leaves + 1, 1) {
    for (const Row& r : rows) {
      const auto* e = given.find(r.path.view());
      const bool usable =
          e != nullptr && !e->uninitialized && e->extents.rank() == r.extents.rank();
      if (!usable && !is_older(given, r.module.view(), r.path.view(), r.since))
        is_there[r.leaf] = 0;
      (r.is_buffer ? buffers : parameters)[r.index] = usable ? e->extents : r.extents;
    }
  }
};

/// The given state converted to the types of the rows, or in its own types if none are chosen.
/// Throws a state_error that lists all mismatches.
template <class Row>
state_dict take_state(const std::vector<Row>& rows, const state_dict& given, std::size_t leaves,
                      bool types_are_chosen) {
  dependent<state_dict, Row> expected;
  std::vector<dependent<char, Row>> has_some(leaves + 1);  // Of what could be uninitialized.
  const auto is_left_out = [&](const Row& r) {
    return is_older(given, r.module.view(), r.path.view(), r.since);
  };
  for (const Row& r : rows) {
    if (is_left_out(r)) continue;
    // The module's type takes precedence over extents set earlier.
    shape extents = r.extents;
    for (std::size_t i = 0; i < extents.rank(); ++i)
      if (r.written[i] >= 0) extents[i] = r.written[i];
    expected.add_uninitialized(r.path.view(), r.type, extents);
    const auto* e = given.find(r.path.view());
    if (e != nullptr && r.waits && !e->uninitialized) has_some[r.leaf] = 1;
  }
  dependent<state_complaint, Row> wrong;
  wrong.compare(expected, given, false);
  for (const Row& r : rows) {
    const auto* e = given.find(r.path.view());
    if (e != nullptr && e->uninitialized && (!r.waits || has_some[r.leaf]))
      wrong.add_uninitialized(r.path.c_str());
  }
  wrong.throw_if_any();
  dependent<state_dict, Row> taken;
  for (const Row& r : rows) {
    // The model will have its initial value.
    if (is_left_out(r)) continue;
    const auto& e = given.at(r.path.view());
    const bool keeps_type = !types_are_chosen && (!r.is_buffer || r.buffer.follows_model);
    const dtype type = keeps_type ? e.type : r.type;
    if (e.uninitialized)
      taken.add_uninitialized(e.name, type, r.extents);
    else
      copy_elements(taken.add_owned(e.name, type, e.extents), type, e);
  }
  return taken;
}

/// The state of a network with element type T before its first input: lazy parts are marked, the
/// rest has its initial values, or those that were loaded. T is void if it is not chosen yet; it is
/// then float32, PyTorch's default, until a state or an input decides.
template <any_module M, class T>
class pending_state {
  using element = element_of<std::conditional_t<std::is_void_v<T>, float, T>>;
  static constexpr program_sizes sizes = outline_of<M>.sizes;

 public:
  explicit pending_state(const M& m) : open_{open_dimensions(m)} {}

  /// Whether a state was loaded, completely or in part.
  bool is_loaded() const { return !loaded_.empty(); }
  const state_dict& loaded() const { return loaded_; }

  bool has_uninitialized() const {
    if (!is_loaded()) return has_uninitialized_params(module_value<M>);
    for (const auto& e : loaded_)
      if (e.uninitialized) return true;
    return false;
  }

  /// The module with every extent known so far; the others are dynamic.
  const opened_t<M>& module() const { return open_; }

  /// Views of the loaded state. Without one, an initial state with its own memory, in which tensors
  /// of lazy modules are uninitialized.
  state_view get(seed s) const {
    if (is_loaded()) return loaded_.views();
    const auto p = outline(open_);
    std::vector<element*> parameters(sizes.parameters + 1);
    std::vector<dependent<std::byte*, M>> buffers(sizes.buffers + 1);
    auto dict = initial_state<element>(rows(p), s, parameters.data(), buffers.data());
    finish_leaves<element> finish{p.nodes.data(), p.leaves.data(), parameters.data(),
                                  buffers.data(), lazy_leaves_of<M>.data()};
    for_each_leaf(open_, finish);
    return state_view(std::move(dict));
  }

  /// Loads a state together with its extents. What is lazy here may be uninitialized there, module
  /// by module; a state_error lists any other difference in keys, shapes or types, and nothing has
  /// changed.
  void load(const M& m, const state_dict& given) {
    opened_t<M> bound = open_dimensions(m);
    const auto p = outline(bound);
    const given_extents extents(rows(p), given, sizes);
    bind_leaf_states bind{p.nodes.data(), p.leaves.data(), extents.parameters.data(),
                          extents.buffers.data(), extents.is_there.data()};
    for_each_leaf(bound, bind);
    loaded_ = take_state(rows(outline(bound)), given, sizes.leaves, !std::is_void_v<T>);
    open_ = bound;
  }

 private:
  static auto rows(const program<sizes>& p) {
    return rows_of(p, outline_of<M>, lazy_leaves_of<M>, dtype_of<element>);
  }

  opened_t<M> open_;
  dependent<state_dict, M> loaded_;
};

}  // namespace ikebana::detail
