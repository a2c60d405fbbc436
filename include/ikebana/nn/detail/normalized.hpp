#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana::detail {

constexpr bool has_lazy(const shape& s) {
  for (dim_t d : s)
    if (d == lazy) return true;
  return false;
}

constexpr bool has_dynamic(const shape& s) {
  for (dim_t d : s)
    if (d == dynamic) return true;
  return false;
}

/// The last n extents of s, whose rank is at least n.
constexpr shape last_extents(const shape& s, std::size_t n) {
  shape out;
  for (std::size_t i = s.rank() - n; i < s.rank(); ++i) out.push_back(s[i]);
  return out;
}

/// The normalized shape: static, or bound at run time.
template <shape S, bool Dynamic = has_dynamic(S)>
struct normalized {
  constexpr shape value() const { return S; }
  constexpr void bind(const shape&) {}
};
template <shape S>
struct normalized<S, true> {
  shape known = S;
  constexpr shape value() const { return known; }
  constexpr void bind(const shape& s) { known = s; }
};

/// Checks that an input ends in the extents `expected`.
template <literal Kind>
constexpr diagnostic check_normalized(const shape& expected, const shape& in) {
  const std::size_t n = expected.rank();
  if (in.rank() < n)
    return {joined<Kind,
                   " expects an input of at least {expected} dimensions, got {got} (input "
                   "{input})">,
            static_cast<dim_t>(n), static_cast<dim_t>(in.rank()), in};
  for (std::size_t i = 0; i < n; ++i)
    if (!fits(expected[i], in[in.rank() - n + i])) {
      if (n == 1)
        return {joined<Kind, " expects normalized_shape = {expected}, got {got} (input {input})">,
                expected[0], in.back(), in};
      return {joined<Kind,
                     " expects normalized_shape = {other}, got {got} where it has {expected} "
                     "(input {input})">,
              expected[i], in[in.rank() - n + i], in, expected};
    }
  return {};
}

inline void add_normalized(description& d, const shape& s) {
  if (s.rank() == 1)
    d.add("normalized_shape", s[0]);
  else
    d.add("normalized_shape", text<160>{}.append(s).view());
}

/// An input as rows to be normalised.
struct row_sizes {
  dim_t rows, each;
  row_sizes(const shape& in, std::size_t normalized)
      : rows{in.numel(0, in.rank() - normalized)},
        each{in.numel(in.rank() - normalized, in.rank())} {}
};

}  // namespace ikebana::detail
