#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ikebana/core/shape.hpp"

namespace ikebana {

/// A structural string of at most N - 1 characters, formatted by constexpr code. Longer text is
/// truncated. The array is the only member, so that compilers print a `text` used as a template
/// argument as the string it holds.
template <std::size_t N>
struct text {
  char data[N]{};

  constexpr text() = default;
  constexpr text(std::string_view s) { append(s); }

  constexpr std::size_t size() const {
    std::size_t n = 0;
    while (n < N && data[n] != '\0') ++n;
    return n;
  }
  constexpr bool empty() const { return data[0] == '\0'; }
  constexpr std::string_view view() const { return {data, size()}; }
  constexpr const char* c_str() const { return data; }

  [[gnu::cold]] constexpr text& append(std::string_view s) {
    std::size_t n = size();
    for (std::size_t i = 0; i < s.size() && n + 1 < N; ++i) data[n++] = s[i];
    return *this;
  }

  /// Appends a number, or the name of a non-static extent.
  [[gnu::cold]] constexpr text& append(dim_t d) {
    if (d == dynamic) return append("dynamic");
    if (d == lazy) return append("lazy");
    return append_number(d);
  }

  /// Appends a number that is not an extent.
  [[gnu::cold]] constexpr text& append_number(std::int64_t d) {
    char digits[24]{};
    std::size_t n = 0;
    bool negative = d < 0;
    do {
      dim_t digit = d % 10;
      digits[n++] = static_cast<char>('0' + (negative ? -digit : digit));
      d /= 10;
    } while (d != 0);
    if (negative) digits[n++] = '-';
    for (std::size_t i = 0; i < n / 2; ++i) {
      char c = digits[i];
      digits[i] = digits[n - 1 - i];
      digits[n - 1 - i] = c;
    }
    return append(std::string_view{digits, n});
  }

  [[gnu::cold]] constexpr text& append(const shape& s) {
    append("[");
    for (std::size_t i = 0; i < s.rank(); ++i) {
      if (i != 0) append(", ");
      append(s[i]);
    }
    return append("]");
  }

  constexpr bool operator==(const text& other) const { return view() == other.view(); }
};

}  // namespace ikebana
