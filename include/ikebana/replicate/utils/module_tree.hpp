#pragma once

#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"

namespace ikebana {

/// A module of a tree: its path, its position, and its own parameters and buffers.
struct module_entry {
  path_text path{};  ///< Empty for the whole network.
  std::string_view kind{};
  int parent = -1;
  int end = 0;  ///< One past the last module below it; they follow it directly.
  int first_parameter = 0, end_parameter = 0;
  int first_buffer = 0, end_buffer = 0;

  constexpr bool has_buffer() const { return first_buffer < end_buffer; }
};

/// A parameter or a buffer of a tree.
struct module_state_entry {
  path_text path{};
  int module = 0;
};

namespace detail {

struct tree_counts {
  std::size_t modules = 0, parameters = 0, buffers = 0;

  constexpr tree_counts operator+(const tree_counts& o) const {
    return {modules + o.modules, parameters + o.parameters, buffers + o.buffers};
  }
  constexpr tree_counts operator*(std::size_t n) const {
    return {modules * n, parameters * n, buffers * n};
  }
};

template <class M>
struct count_tree {
  static constexpr tree_counts value{1, parameter_count<M>(), buffer_count<M>()};
};
template <class Tuple>
struct count_children;
template <class... C>
struct count_children<boost::hana::tuple<C...>> {
  static constexpr tree_counts value =
      (tree_counts{1} + ... + (count_tree<typename unwrap_named<C>::type>::value * part_count<C>));
};
template <composite_module M>
struct count_tree<M> : count_children<std::remove_cvref_t<decltype(M::children)>> {};

/// The tables under construction; not a template, so that code for a leaf is instantiated per leaf
/// only.
struct tree_tables {
  module_entry* modules;
  module_state_entry* parameters;
  module_state_entry* buffers;
  int module_count = 0, parameter_count = 0, buffer_count = 0;

  constexpr path_text below(int module, std::string_view name) const {
    path_text p = modules[module].path;
    if (!p.empty()) p.append(".");
    return p.append(name);
  }
};

template <class M>
constexpr void add_to_tree(const M& m, tree_tables& t, int parent, const path_text& path) {
  const int self = t.module_count++;
  t.modules[self] = {path, M::kind, parent, 0, t.parameter_count, 0, t.buffer_count, 0};
  if constexpr (parameter_count<M>() > 0)
    for (const auto& p : m.parameters())
      t.parameters[t.parameter_count++] = {t.below(self, p.name), self};
  if constexpr (buffer_count<M>() > 0)
    for (const auto& b : m.buffers()) t.buffers[t.buffer_count++] = {t.below(self, b.name), self};
  t.modules[self].end_parameter = t.parameter_count;
  t.modules[self].end_buffer = t.buffer_count;
  if constexpr (composite_module<M>) {
    for_each_child(m, [&](const auto& child, const child_name& name) {
      path_text own;
      if (name.index < 0)
        own.append(std::string_view{name.name});
      else
        own.append(static_cast<dim_t>(name.index));
      add_to_tree(child, t, self, t.below(self, own.view()));
    });
  }
  t.modules[self].end = t.module_count;
}

}  // namespace detail

/// The modules of a network in pre-order (PyTorch's `named_modules()`), with their parameters and
/// buffers. A constant expression.
template <std::size_t Modules, std::size_t Parameters, std::size_t Buffers>
struct module_tree {
  program_table<module_entry, Modules> modules{};
  program_table<module_state_entry, Parameters> parameters{};
  program_table<module_state_entry, Buffers> buffers{};

  static constexpr std::size_t size() { return Modules; }
  static constexpr std::size_t parameter_count() { return Parameters; }
  static constexpr std::size_t buffer_count() { return Buffers; }
  constexpr const module_entry& operator[](std::size_t i) const { return modules[i]; }

  /// The module of that path ("" is the whole network); -1 if there is none. O(modules).
  constexpr int find(std::string_view path) const {
    for (std::size_t i = 0; i < Modules; ++i)
      if (modules[i].path.view() == path) return static_cast<int>(i);
    return -1;
  }
  constexpr bool has_parameter(std::string_view path) const {
    for (std::size_t i = 0; i < Parameters; ++i)
      if (parameters[i].path.view() == path) return true;
    return false;
  }
  /// Whether a parameter or a buffer has that path.
  constexpr bool has_state(std::string_view path) const {
    if (has_parameter(path)) return true;
    for (std::size_t i = 0; i < Buffers; ++i)
      if (buffers[i].path.view() == path) return true;
    return false;
  }
};

/// The tree of a module, lazy or not: names and positions need no shapes.
template <any_module M>
constexpr auto module_tree_of(const M& m) {
  constexpr detail::tree_counts n = detail::count_tree<M>::value;
  module_tree<n.modules, n.parameters, n.buffers> tree;
  detail::tree_tables t{tree.modules.data(), tree.parameters.data(), tree.buffers.data()};
  detail::add_to_tree(m, t, -1, {});
  return tree;
}

}  // namespace ikebana
