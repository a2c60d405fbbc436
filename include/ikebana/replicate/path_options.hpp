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

/// What stays local to each rank: parameters and buffers by path, or everything at and below a
/// module. They are neither compared nor sent when a model is replicated, their gradients are not
/// reduced, and buffers are not broadcast. `ignored<"head", "scale">`
template <detail::literal... Paths>
struct ignored : detail::path_list<Paths...> {
  using replicate_key = detail::ignored_key;
};

/// The same by a predicate on paths, called with those of parameters and buffers, and of the
/// modules above them: `ignored_if<is_an_adapter>` with `constexpr bool
/// is_an_adapter(std::string_view)`.
template <auto Predicate>
struct ignored_if {
  using replicate_key = detail::ignored_if_key;

  static constexpr bool covers(std::string_view path) {
    for (std::size_t n = 0; n < path.size(); ++n)
      if (path[n] == '.' && Predicate(path.substr(0, n))) return true;
    return Predicate(path);
  }
};

/// Parameters by path, or all those of modules, that are averaged in one separate reduction outside
/// all buckets and comm_hook, which starts once backward has finished the last of them. For
/// parameters that are ready early and needed late, or that a hook must not see (PyTorch's
/// delay_all_reduce_named_params). It uses the divisor and the synchronisation of the network, and
/// copies gradients to separate memory and back.
template <detail::literal... Paths>
struct delay_all_reduce : detail::path_list<Paths...> {
  static_assert(sizeof...(Paths) > 0, "ikebana: delay_all_reduce expects paths of parameters");
  using replicate_key = detail::delay_all_reduce_key;
};

namespace detail {

/// The paths of one group, concatenated, each with its terminating zero.
template <std::size_t N>
struct path_group {
  char data[N]{};
  constexpr path_group() = default;
  constexpr path_group(const char (&path)[N]) {
    for (std::size_t i = 0; i < N; ++i) data[i] = path[i];
  }
  constexpr std::size_t count() const {
    [[maybe_unused]] std::size_t n = 0;
    for (const char c : data) n += c == '\0';
    return n;
  }
};

template <path_group... Groups>
struct grouped_paths {
  /// The paths of all groups, and for each path the index of its group in Groups.
  static constexpr std::array<std::string_view, (Groups.count() + ... + std::size_t{0})> paths =
      [] {
        std::array<std::string_view, (Groups.count() + ... + std::size_t{0})> all{};
        [[maybe_unused]] std::size_t n = 0;
        [[maybe_unused]] const auto add = [&](std::string_view group) {
          for (std::size_t begin = 0, i = 0; i < group.size(); ++i)
            if (group[i] == '\0') {
              all[n++] = group.substr(begin, i - begin);
              begin = i + 1;
            }
        };
        (add({Groups.data, sizeof Groups.data}), ...);
        return all;
      }();
  static constexpr std::array<std::size_t, paths.size()> groups = [] {
    std::array<std::size_t, paths.size()> all{};
    [[maybe_unused]] std::size_t n = 0, g = 0;
    [[maybe_unused]] const auto add = [&](std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) all[n++] = g;
      ++g;
    };
    (add(Groups.count()), ...);
    return all;
  }();
};

template <literal... Paths>
constexpr auto join_paths() {
  path_group<((Paths.size() + 1) + ... + std::size_t{0})> all;
  std::size_t n = 0;
  const auto add = [&](const auto& path) {
    for (const char c : path.data) all.data[n++] = c;
  };
  (add(Paths), ...);
  return all;
}

}  // namespace detail

/// Makes several modules one group of groups_by_module: `together<"a", "b.c">`.
template <detail::literal... Paths>
requires(sizeof...(Paths) > 0) inline constexpr auto together = detail::join_paths<Paths...>();

/// Modules whose gradients are reduced separately, in groups; all other parameters are one more
/// group. `groups_by_module<"a", together<"b", "c">>` makes one group of "a", and one of "b" and
/// "c". If modules are nested, the innermost one counts. A group without a cap is one bucket if
/// backward completes its parameters without interruption, and otherwise one bucket for each
/// uninterrupted part, since buckets are reduced in place. `set_requires_gradient_sync`, `hook` and
/// similar functions act on groups, by the path of any module of the group; override_at takes the
/// group's first path. (PyTorch: replicate applied to each module or list of modules, then to the
/// root.)
template <detail::path_group... Groups>
struct groups_by_module : detail::grouped_paths<Groups...> {
  static_assert(sizeof...(Groups) > 0, "ikebana: groups_by_module expects paths of modules");
  using replicate_key = detail::groups_key;
};

}  // namespace ikebana
