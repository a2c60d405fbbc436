#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>

#include "ikebana/core/language.hpp"
#include "ikebana/module/named.hpp"

namespace ikebana {

/// Whether a path matches a pattern, in which `*` stands for any characters, dots included:
/// "*.bias" matches "fc.bias" and "encoder.0.bias". O(pattern * path).
constexpr bool matches_pattern(std::string_view path, std::string_view pattern) {
  // Backtracks to the last star only: what earlier stars took can stay as short as possible.
  constexpr std::size_t none = std::string_view::npos;
  std::size_t i = 0, j = 0, star = none, taken = 0;
  while (i < path.size()) {
    if (j < pattern.size() && pattern[j] == '*') {
      star = j++;
      taken = i;
    } else if (j < pattern.size() && pattern[j] == path[i]) {
      ++i;
      ++j;
    } else if (star != none) {
      i = ++taken;
      j = star + 1;
    } else {
      return false;
    }
  }
  while (j < pattern.size() && pattern[j] == '*') ++j;
  return j == pattern.size();
}

/// Whether a pattern matches the path, or that of a module that contains it: "encoder" covers
/// "encoder.0.bias". O(pattern * path^2).
constexpr bool covers_path(std::string_view pattern, std::string_view path) {
  if (matches_pattern(path, pattern)) return true;
  for (std::size_t i = 0; i < path.size(); ++i)
    if (path[i] == '.' && matches_pattern(path.substr(0, i), pattern)) return true;
  return false;
}

namespace detail {

/// Patterns of paths.
template <literal... Patterns>
struct pattern_list {
  static constexpr std::size_t size = sizeof...(Patterns);

  static constexpr bool matches([[maybe_unused]] std::string_view path) {
    return (covers_path({Patterns.data, Patterns.size()}, path) || ...);
  }
  static std::string name() {
    std::string all;
    ((all += all.empty() ? "" : ",", all += std::string_view{Patterns.data, Patterns.size()}), ...);
    return all;
  }

  /// The first of the patterns that matches none of the paths, or their number. Lookup has the
  /// `count` paths, `path(i)`.
  template <class Lookup>
  static constexpr std::size_t find_useless(Lookup) {
    const std::string_view patterns[] = {{Patterns.data, Patterns.size()}..., {}};
    for (std::size_t k = 0; k < size; ++k) {
      bool is_used = false;
      for (std::size_t i = 0; i < Lookup::count && !is_used; ++i)
        is_used = covers_path(patterns[k], Lookup::path(i).view());
      if (!is_used) return k;
    }
    return size;
  }

  template <std::size_t K>
  using nth = std::tuple_element_t<K, std::tuple<hana_string_t<Patterns>...>>;
};

/// The patterns of several lists.
template <class... Lists>
struct join_patterns;
template <literal... A>
struct join_patterns<pattern_list<A...>> {
  using type = pattern_list<A...>;
};
template <literal... A, literal... B, class... More>
struct join_patterns<pattern_list<A...>, pattern_list<B...>, More...>
    : join_patterns<pattern_list<A..., B...>, More...> {};

}  // namespace detail
}  // namespace ikebana
