#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/core/dependent.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/state_dict.hpp"

namespace ikebana::detail {

template <class To, class From>
void convert(std::byte* to, const std::byte* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    From x;
    std::memcpy(&x, from + i * sizeof(From), sizeof(From));
    const To y = static_cast<To>(x);
    std::memcpy(to + i * sizeof(To), &y, sizeof(To));
  }
}

inline bool convertible(dtype from, dtype to) {
  return from == to || (from == dtype::float32 && to == dtype::float64) ||
         (from == dtype::float64 && to == dtype::float32);
}

/// Whether the elements of an entry can be copied to a tensor of this type and shape, whose extents
/// may be `dynamic`.
inline bool entry_fits(const state_dict::entry& e, dtype type, const shape& extents) {
  return !e.uninitialized && compatible(extents, e.extents) && convertible(e.type, type);
}

/// Copies elements, and converts them if the types differ. The types must be convertible.
template <class = void>
void copy_elements(std::byte* to, dtype type, const state_dict::entry& given) {
  const auto n = static_cast<std::size_t>(given.extents.numel());
  if (n == 0) return;
  if (given.type == type)
    std::memmove(to, given.bytes.data(), given.bytes.size());
  else if (type == dtype::float64)
    convert<double, float>(to, given.bytes.data(), n);
  else
    convert<float, double>(to, given.bytes.data(), n);
}

/// The differences between two states, and the text of the error that lists them.
///
/// A template, so that it is compiled only where it is used.
template <class X>
class basic_state_complaint {
 public:
  /// `expected` may have `dynamic` extents. Uninitialized entries are differences if `all_there`.
  void compare(const state_dict& expected, const state_dict& given, bool all_there) {
    for (const auto& own : expected) {
      const auto* e = given.find(own.name);
      if (e == nullptr)
        lists_.missing.push_back(own.name);
      else if (e->uninitialized && all_there)
        add_uninitialized(own.name);
      else if ((!e->uninitialized && !compatible(own.extents, e->extents)) ||
               !convertible(e->type, own.type))
        add_mismatched(own.name, describe(own.type, own.extents), describe(e->type, e->extents));
    }
    for (const auto& e : given)
      if (!expected.contains(e.name)) lists_.unexpected.push_back(e.name);
    if (!lists_.missing.empty() && !lists_.unexpected.empty()) find_prefix(expected, given);
  }

  void add_uninitialized(const std::string& name) { lists_.uninitialized.push_back(name); }
  [[gnu::cold]] void add_mismatched(const std::string& name, const std::string& expects,
                                    const std::string& got) {
    lists_.mismatched.push_back(name);
    if (!mismatches_.empty()) mismatches_ += ", ";
    mismatches_ += name + " expects " + expects + ", got " + got;
  }

  /// Puts a hint on how to fix the state before the lists.
  void say_first(std::string hint) { hint_ = std::move(hint); }

  const state_differences& lists() const { return lists_; }

  [[gnu::cold]] void throw_if_any() const {
    if (lists_.empty()) return;
    std::string text = hint_;
    const auto add = [&text](const char* title, const std::string& what) {
      if (what.empty()) return;
      if (!text.empty()) text += "; ";
      text += title + what;
    };
    add("missing keys: ", joined(lists_.missing));
    add("unexpected keys: ", joined(lists_.unexpected));
    add("mismatched: ", mismatches_);
    add("uninitialized: ", joined(lists_.uninitialized));
    throw_error(state_error("load_state_dict: " + text, lists_));
  }

 private:
  [[gnu::cold]] static std::string joined(const std::vector<dependent<std::string, X>>& names) {
    std::string all;
    for (const auto& name : names) all += (all.empty() ? "" : ", ") + name;
    return all;
  }

  /// The length of the prefix of `name`, up to a dot, that all names of `from` have and that `to`
  /// lacks; 0 if there is none.
  [[gnu::cold]] static std::size_t surplus(std::string_view name, const state_dict& from,
                                           const state_dict& to) {
    for (std::size_t n = name.find('.') + 1; n != 0; n = name.find('.', n) + 1) {
      if (!to.contains(name.substr(n))) continue;
      bool all = true;
      for (const auto& e : from) all = all && e.name.starts_with(name.substr(0, n));
      if (all) return n;
    }
    return 0;
  }

  /// Wrappers of modules add a prefix to every key.
  [[gnu::cold]] void find_prefix(const state_dict& expected, const state_dict& given) {
    const std::string& found = lists_.unexpected.front();
    const std::string& wanted = lists_.missing.front();
    if (const std::size_t n = surplus(found, given, expected); n != 0) {
      const std::string prefix = '"' + found.substr(0, n) + '"';
      hint_ = "every key begins with " + prefix +
              (prefix == "\"module.\""      ? ", as DistributedDataParallel saves them"
               : prefix == "\"_orig_mod.\"" ? ", as torch.compile saves them"
                                            : "") +
              ": replace_by_prefix(dict, " + prefix + ", \"\") takes it away";
    } else if (const std::size_t m = surplus(wanted, expected, given); m != 0) {
      const std::string prefix = '"' + wanted.substr(0, m) + '"';
      hint_ = "every key lacks " + prefix + " before it: replace_by_prefix(dict, \"\", " + prefix +
              ") puts it there";
    }
  }

  dependent<state_differences, X> lists_;
  std::string mismatches_, hint_;
};
using state_complaint = basic_state_complaint<void>;

}  // namespace ikebana::detail
