#pragma once

#include <cstddef>
#include <string_view>

#include "ikebana/core/language.hpp"

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

}  // namespace ikebana
