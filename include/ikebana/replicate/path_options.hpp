#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "ikebana/module/named.hpp"
#include "ikebana/replicate/utils/root_modules.hpp"

namespace ikebana {

namespace detail {

struct ignored_key {};
struct ignored_if_key {};
struct delay_all_reduce_key {};
struct groups_key {};

/// Paths given as template arguments.
template <literal... Paths>
struct path_list {
  static constexpr std::array<std::string_view, sizeof...(Paths)> paths{
      std::string_view{Paths.data, Paths.size()}...};

  /// Whether one of them is this path, or that of a module above it.
  static constexpr bool covers(std::string_view path) {
    for (const std::string_view p : paths)
      if (is_at_or_below(path, p)) return true;
    return false;
  }
};

}  // namespace detail

/// What stays each rank's own: parameters and buffers by their paths, or all at and below a module
/// by its path. They are not compared nor sent when a model is replicated, their gradients are not
/// reduced, and buffers are not broadcast. `ignored<"head", "scale">`
template <detail::literal... Paths>
struct ignored : detail::path_list<Paths...> {
  using replicate_key = detail::ignored_key;
};

/// The same by a predicate on paths, asked of those of parameters and buffers, and of the modules
/// above them: `ignored_if<is_an_adapter>` with `constexpr bool is_an_adapter(std::string_view)`.
template <auto Predicate>
struct ignored_if {
  using replicate_key = detail::ignored_if_key;

  static constexpr bool covers(std::string_view path) {
    for (std::size_t n = 0; n < path.size(); ++n)
      if (path[n] == '.' && Predicate(path.substr(0, n))) return true;
    return Predicate(path);
  }
};

/// Parameters by their paths, or those of modules, that get one reduction of their own, apart from
/// all buckets and from comm_hook: their average, begun once backward has finished the last of
/// them. For parameters that are ready early and wanted late, or that a hook must not see
/// (PyTorch's delay_all_reduce_named_params). It goes by the divisor and the synchronisation of the
/// network as a whole, and copies gradients to memory of its own and back.
template <detail::literal... Paths>
struct delay_all_reduce : detail::path_list<Paths...> {
  static_assert(sizeof...(Paths) > 0, "ikebana: delay_all_reduce expects paths of parameters");
  using replicate_key = detail::delay_all_reduce_key;
};

/// Modules whose gradients are reduced apart from all others, each in buckets of its own; what is
/// in none of them is one more group. Of modules that lie in one another the deepest counts. Each
/// group is one bucket where backward finishes it in one go, unless the policy has a cap.
/// `set_requires_gradient_sync` acts on groups. (PyTorch: replicate applied to each of the modules,
/// then to the root.)
template <detail::literal... Paths>
struct groups_by_module : detail::path_list<Paths...> {
  static_assert(sizeof...(Paths) > 0, "ikebana: groups_by_module expects paths of modules");
  using replicate_key = detail::groups_key;
};

}  // namespace ikebana
