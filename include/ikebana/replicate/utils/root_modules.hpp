#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/replicate/utils/module_tree.hpp"

namespace ikebana {

/// Whether `path` is that of a module or parameter below the module `ancestor`; everything but the
/// network itself is below the network, whose path is "".
constexpr bool is_below(std::string_view path, std::string_view ancestor) {
  if (ancestor.empty()) return !path.empty();
  return path.size() > ancestor.size() && path[ancestor.size()] == '.' &&
         path.starts_with(ancestor);
}

/// Whether the paths are equal or is_below holds.
constexpr bool is_at_or_below(std::string_view path, std::string_view ancestor) {
  return path == ancestor || is_below(path, ancestor);
}

/// Some paths of a module tree, as a value.
template <std::size_t N>
struct selected_paths {
  std::array<std::string_view, N> paths{};
  std::size_t count = 0;

  constexpr std::size_t size() const { return count; }
  constexpr bool empty() const { return count == 0; }
  constexpr std::string_view operator[](std::size_t i) const { return paths[i]; }
  constexpr const std::string_view* begin() const { return paths.data(); }
  constexpr const std::string_view* end() const { return paths.data() + count; }
};

/// Which of several paths are not below another of them, as ordered indices into `paths`; for
/// repeated paths, the first. Writes to `out`, which has room for paths.size(), and returns their
/// number. O(n log n) comparisons; no allocation.
template <class = void>
constexpr std::size_t root_modules(std::span<const std::string_view> paths,
                                   std::span<std::size_t> out) {
  for (std::size_t i = 0; i < paths.size(); ++i) out[i] = i;
  const auto sorted = out.first(paths.size());
  // With the dot before every other character, paths below a path follow it directly.
  std::sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
    const std::string_view x = paths[a], y = paths[b];
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (x[i] == y[i]) continue;
      if (x[i] == '.' || y[i] == '.') return x[i] == '.';
      return x[i] < y[i];
    }
    return x.size() != y.size() ? x.size() < y.size() : a < b;
  });
  std::size_t count = 0;
  for (const std::size_t i : sorted)
    if (count == 0 || !is_at_or_below(paths[i], paths[out[count - 1]])) out[count++] = i;
  const auto roots = out.first(count);
  std::sort(roots.begin(), roots.end());
  return count;
}

/// The same as a value: `root_modules(std::array<std::string_view, 2>{"layer", "layer.fc"})`. Views
/// of the given paths.
template <std::size_t N>
constexpr selected_paths<N> root_modules(const std::array<std::string_view, N>& paths) {
  selected_paths<N> roots;
  std::array<std::size_t, N> places{};
  roots.count = root_modules(paths, places);
  for (std::size_t i = 0; i < roots.count; ++i) roots.paths[i] = paths[places[i]];
  return roots;
}

namespace detail {

template <any_module M, literal... Paths>
constexpr diagnostic check_roots() {
  const auto tree = module_tree_of(M{});
  for (const std::string_view p : {std::string_view{Paths.data, Paths.size()}...})
    if (tree.find(p) < 0) return {"is not the path of a module", 0, 0, {}, {}, path_text{p}};
  return {};
}

}  // namespace detail

/// The same for paths in a network, which the compiler looks up: `root_modules<"layer",
/// "layer.fc">(net)`. A path that is not that of one of its modules does not compile.
template <detail::literal... Paths, any_module M>
requires(detail::accepts<detail::check_roots<M, Paths...>>) constexpr auto root_modules(const M&) {
  return root_modules(std::array<std::string_view, sizeof...(Paths)>{
      std::string_view{Paths.data, Paths.size()}...});
}
template <detail::literal... Paths, any_module M>
requires(!detail::accepts<detail::check_roots<M, Paths...>>) auto root_modules(const M&)
    -> decltype(detail::refuse<detail::check_roots<M, Paths...>>());

/// The index of the root that manages this path: the innermost at or above it; -1 if there is none.
/// Roots are applied bottom-up, so that an outer one gets what inner ones leave.
constexpr int managing_root(std::string_view path, std::span<const std::string_view> roots) {
  int best = -1;
  for (std::size_t i = 0; i < roots.size(); ++i)
    if (is_at_or_below(path, roots[i]) &&
        (best < 0 || roots[i].size() > roots[static_cast<std::size_t>(best)].size()))
      best = static_cast<int>(i);
  return best;
}

}  // namespace ikebana
