#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

#include "ikebana/core/error.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/replicate/utils/module_tree.hpp"
#include "ikebana/replicate/utils/root_modules.hpp"

namespace ikebana {

/// The options of one application of replicate for parts of a network, by path. Holds views: use it
/// in the expression that creates it, or as a constant.
struct management {
  /// Where replicate is applied; the whole network if empty.
  std::initializer_list<std::string_view> roots = {};
  /// Modules that were replicated before: they and their children are skipped, unless they are
  /// roots.
  std::initializer_list<std::string_view> replicated = {};
  /// Sharded modules: skipped too, whether they are roots or not.
  std::initializer_list<std::string_view> sharded = {};
  /// Parameters, or modules for all parameters at and below them, that stay local to each rank.
  std::initializer_list<std::string_view> ignored = {};
};

/// Some entries of a table, in order.
template <std::size_t N>
struct index_list {
  program_table<std::size_t, N> indices{};
  std::size_t count = 0;

  constexpr std::size_t size() const { return count; }
  constexpr bool empty() const { return count == 0; }
  constexpr std::size_t operator[](std::size_t i) const { return indices[i]; }
  constexpr const std::size_t* begin() const { return indices.data(); }
  constexpr const std::size_t* end() const { return indices.data() + count; }
  constexpr void push_back(std::size_t i) { indices[count++] = i; }
};

/// Whether the state at `path` is ignored.
constexpr bool is_ignored(std::string_view path, std::initializer_list<std::string_view> ignored) {
  for (const std::string_view p : ignored)
    if (is_at_or_below(path, p)) return true;
  return false;
}

/// Whether a module has nothing to manage: it and everything below it have no buffers and no
/// parameters that are not ignored. True for a module without parameters and buffers.
template <std::size_t M, std::size_t P, std::size_t B>
constexpr bool is_ignorable(const module_tree<M, P, B>& tree, std::size_t module,
                            std::initializer_list<std::string_view> ignored) {
  for (std::size_t m = module; m < static_cast<std::size_t>(tree[module].end); ++m) {
    if (tree[m].has_buffer()) return false;
    for (int p = tree[m].first_parameter; p < tree[m].end_parameter; ++p)
      if (!is_ignored(tree.parameters[static_cast<std::size_t>(p)].path.view(), ignored))
        return false;
  }
  return true;
}

namespace detail {

constexpr bool names_path(std::string_view path, std::initializer_list<std::string_view> paths) {
  for (const std::string_view p : paths)
    if (p == path) return true;
  return false;
}

template <std::size_t M, std::size_t P, std::size_t B>
struct manager {
  const module_tree<M, P, B>& tree;
  const management& said;
  program_table<bool, M> visited{};
  index_list<M> found{};

  constexpr void require_module(std::string_view path) const {
    if (tree.find(path) < 0)
      throw state_error("managed_modules: \"" + std::string(path) +
                        "\" is not the path of a module");
  }
  constexpr void check() const {
    for (const std::string_view p : said.roots) require_module(p);
    for (const std::string_view p : said.replicated) require_module(p);
    for (const std::string_view p : said.sharded) require_module(p);
    for (const std::string_view p : said.ignored)
      if (!tree.has_state(p)) require_module(p);
  }
  constexpr bool is_root(std::string_view path) const {
    return said.roots.size() == 0 ? path.empty() : names_path(path, said.roots);
  }

  /// Children before their parent.
  constexpr void visit(int module) {
    const auto m = static_cast<std::size_t>(module);
    const std::string_view path = tree[m].path.view();
    if (visited[m] || names_path(path, said.sharded)) return;
    if (!is_root(path) && names_path(path, said.replicated)) return;
    visited[m] = true;
    for (int child = module + 1; child < tree[m].end;
         child = tree[static_cast<std::size_t>(child)].end)
      visit(child);
    if (said.ignored.size() == 0 || !is_ignorable(tree, m, said.ignored)) found.push_back(m);
  }

  constexpr void run() {
    check();
    if (said.roots.size() == 0) return visit(0);
    for (const std::string_view root : said.roots) visit(tree.find(root));
  }
};

}  // namespace detail

/// The modules that an application of replicate manages, in post-order, each once: everything below
/// the roots except what is sharded or was replicated before. If parameters are ignored, modules
/// that contain nothing else are left out. Throws state_error for a path that is not in the tree
/// (in a constant expression: does not compile). O(modules * paths).
template <std::size_t M, std::size_t P, std::size_t B>
constexpr index_list<M> managed_modules(const module_tree<M, P, B>& tree,
                                        const management& said = {}) {
  detail::manager<M, P, B> m{tree, said};
  m.run();
  return m.found;
}

/// Parameters and buffers as indices into the tables of their tree.
template <std::size_t Parameters, std::size_t Buffers>
struct managed_state_list {
  index_list<Parameters> parameters{};
  index_list<Buffers> buffers{};
};

/// The parameters of the managed modules that are not ignored, and their buffers, in order, each
/// once. Throws as managed_modules does.
template <std::size_t M, std::size_t P, std::size_t B>
constexpr managed_state_list<P, B> managed_states(const module_tree<M, P, B>& tree,
                                                  const management& said = {}) {
  managed_state_list<P, B> out;
  for (const std::size_t m : managed_modules(tree, said)) {
    for (int p = tree[m].first_parameter; p < tree[m].end_parameter; ++p)
      if (!is_ignored(tree.parameters[static_cast<std::size_t>(p)].path.view(), said.ignored))
        out.parameters.push_back(static_cast<std::size_t>(p));
    for (int b = tree[m].first_buffer; b < tree[m].end_buffer; ++b)
      out.buffers.push_back(static_cast<std::size_t>(b));
  }
  return out;
}

}  // namespace ikebana
