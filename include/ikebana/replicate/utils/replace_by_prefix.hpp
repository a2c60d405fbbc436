#pragma once

#include <string>
#include <string_view>

#include "ikebana/core/error.hpp"
#include "ikebana/model/state_dict.hpp"

namespace ikebana {

/// Renames every key of a dict that starts with `old_prefix`, replacing it by `new_prefix`. Each
/// key is renamed once; other occurrences of the prefix, the order and the tensors are kept. Throws
/// state_error, before anything has changed, if the prefixes are equal or two keys would be.
/// O(entries log entries).
inline void replace_by_prefix(state_dict& dict, std::string_view old_prefix,
                              std::string_view new_prefix) {
  if (old_prefix == new_prefix)
    throw state_error("replace_by_prefix: the prefixes must be distinct, got \"" +
                      std::string(old_prefix) + "\" twice");
  dict.rename_all([&](const auto& e) {
    return e.name.starts_with(old_prefix)
               ? std::string(new_prefix) + e.name.substr(old_prefix.size())
               : e.name;
  });
}

}  // namespace ikebana
