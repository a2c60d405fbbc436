#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/model/state_dict.hpp"

namespace ikebana {

/// Renames every key of a dict that begins with `old_prefix`: that beginning becomes `new_prefix`.
/// Each key is renamed once, other places of the prefix stay, and so do the order and the tensors.
/// Throws state_error, before anything has changed, if the prefixes are equal or two keys would be.
/// O(renamed * entries).
inline void replace_by_prefix(state_dict& dict, std::string_view old_prefix,
                              std::string_view new_prefix) {
  if (old_prefix == new_prefix)
    throw state_error("replace_by_prefix: the prefixes must be distinct, got \"" +
                      std::string(old_prefix) + "\" twice");
  std::vector<std::pair<std::string, std::string>> renamed;  // from, to
  bool meets_a_key = false;
  for (const auto& e : dict) {
    if (!e.name.starts_with(old_prefix)) continue;
    std::string to = std::string(new_prefix) + e.name.substr(old_prefix.size());
    // Two keys that are renamed stay different: they differ after the prefix.
    if (dict.contains(to)) {
      if (!to.starts_with(old_prefix))
        throw state_error("replace_by_prefix: " + e.name + " would become " + to +
                          ", which is already in this state_dict");
      meets_a_key = true;
    }
    renamed.emplace_back(e.name, std::move(to));
  }
  // A name that another key has until it is renamed itself is reached by way of names that no key
  // has: longer than any.
  if (meets_a_key) {
    std::size_t longest = 0;
    for (const auto& e : dict) longest = std::max(longest, e.name.size());
    const std::string beyond(longest + 1, '.');
    for (auto& [from, to] : renamed) {
      dict.rename(from, beyond + from);
      from = beyond + from;
    }
  }
  for (const auto& [from, to] : renamed) dict.rename(from, to);
}

}  // namespace ikebana
