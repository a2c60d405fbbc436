#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana::detail {

namespace misuse {
IKEBANA_MISUSE(path_that_is_no_literal,
               "a path is a literal: \"fc1.weight\"_s, with using namespace ikebana::literals");
}

/// Whether Path is the type of a literal `"fc1.weight"_s`.
template <class Path>
inline constexpr bool is_path = requires {
  Path::c_str();
};

/// The number of characters that two paths share at both ends, to find the path that was meant.
constexpr std::size_t likeness(std::string_view a, std::string_view b) {
  const std::size_t most = a.size() < b.size() ? a.size() : b.size();
  std::size_t first = 0, last = 0;
  while (first < most && a[first] == b[first]) ++first;
  while (first + last < most && a[a.size() - 1 - last] == b[b.size() - 1 - last]) ++last;
  return first + last;
}

/// The sentence "fc1.wieght: is not the path of a parameter; there are fc1.weight, fc1.bias", with
/// as many of the N paths as fit, and the one most similar to `wrong` first.
template <std::size_t N, class PathAt>
constexpr sentence unknown_path(std::string_view wrong, std::string_view what, PathAt path_at) {
  sentence s;
  s.append(wrong).append(": is not the path of a ").append(what);
  std::size_t best = 0, best_likeness = 0;
  for (std::size_t i = 0; i < N; ++i) {
    const path_text p = path_at(i);
    if (const std::size_t like = likeness(wrong, p.view()); like > best_likeness) {
      best = i;
      best_likeness = like;
    }
  }
  std::string_view separator = N == 0 ? "; there is none" : "; there are ";
  if (N == 0) s.append(separator);
  for (std::size_t n = 0; n < N; ++n) {
    const path_text p = path_at(n == 0 ? best : n <= best ? n - 1 : n);
    if (p.empty()) continue;
    if (s.size() + separator.size() + p.size() + 6 > sizeof(s.data)) {
      s.append(", ...");
      break;
    }
    s.append(separator).append(p.view());
    separator = ", ";
  }
  return s;
}

/// The refusal of a path. Lookup has the `count` paths of the network, `path(i)`, and their kind,
/// `what`.
template <path_text Wrong, class Lookup>
constexpr auto find_path_refusal() {
  constexpr sentence says = unknown_path<Lookup::count>(
      Wrong.view(), Lookup::what, [](std::size_t i) { return Lookup::path(i); });
  return std::type_identity<refusal_t<Wrong, 0, 0, says>>{};
}
template <class Path, class Lookup>
constexpr auto find_path_refusal() {
  if constexpr (is_path<Path>)
    return find_path_refusal<path_text{Path::c_str()}, Lookup>();
  else
    return because<misuse::path_that_is_no_literal>{};
}

template <class Path, class Lookup>
auto refuse_path() -> decltype(declared(find_path_refusal<Path, Lookup>()));

}  // namespace ikebana::detail
