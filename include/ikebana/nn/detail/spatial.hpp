#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "ikebana/core/shape.hpp"
#include "ikebana/core/text.hpp"
#include "ikebana/module/named.hpp"

namespace ikebana::detail {

template <literal... Part>
struct joined_text {
  static constexpr text<(Part.size() + ... + std::size_t{1})> value = [] {
    text<(Part.size() + ... + std::size_t{1})> t;
    (t.append(std::string_view{Part.data, Part.size()}), ...);
    return t;
  }();
};

/// The concatenation of literals, with the static storage that a diagnostic's sentence needs.
template <literal... Part>
inline constexpr const char* joined = joined_text<Part...>::value.data;

template <std::size_t N>
inline constexpr literal<2> digit{{static_cast<char>('0' + N), '\0'}};

/// The values of N spatial dimensions right-aligned in an array of three, missing ones set to
/// `fill`.
template <std::size_t N>
constexpr std::array<dim_t, 3> in_three(const std::array<dim_t, N>& values, dim_t fill) {
  std::array<dim_t, 3> out{fill, fill, fill};
  for (std::size_t i = 0; i < N; ++i) out[3 - N + i] = values[i];
  return out;
}

/// The last N extents of s right-aligned in an array of three, missing ones set to 1.
template <std::size_t N>
constexpr std::array<dim_t, 3> spatial_extents(const shape& s) {
  std::array<dim_t, 3> out{1, 1, 1};
  for (std::size_t i = 0; i < N; ++i) out[3 - N + i] = s[s.rank() - N + i];
  return out;
}

/// Whether every value is at least `least`.
template <std::size_t N>
constexpr bool all_at_least(const std::array<dim_t, N>& values, dim_t least) {
  for (dim_t v : values)
    if (v < least) return false;
  return true;
}

template <std::size_t N>
constexpr bool all_equal_to(const std::array<dim_t, N>& values, dim_t v) {
  for (dim_t x : values)
    if (x != v) return false;
  return true;
}

/// The extent of a dilated kernel.
constexpr dim_t reach(dim_t kernel, dim_t dilation) { return dilation * (kernel - 1) + 1; }

}  // namespace ikebana::detail
