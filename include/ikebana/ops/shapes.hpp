#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ikebana/core/shape.hpp"
#include "ikebana/module/describe.hpp"

namespace ikebana::ops {

/// Dimension d of `rank`, which counts from the end if negative.
constexpr std::size_t dim_of(dim_t d, std::size_t rank) {
  return static_cast<std::size_t>(d < 0 ? d + static_cast<dim_t>(rank) : d);
}
constexpr bool has_dim(dim_t d, std::size_t rank) {
  return d < static_cast<dim_t>(rank) && d >= -static_cast<dim_t>(rank);
}

/// A few numbers as a value: dimensions, extents.
struct number_list {
  dim_t items[shape::max_rank]{};
  std::size_t count = 0;

  template <dim_t... N>
  static constexpr number_list of() {
    static_assert(sizeof...(N) <= shape::max_rank, "ikebana: a value has at most 8 dimensions");
    number_list l;
    ((l.items[l.count++] = N), ...);
    return l;
  }
  constexpr std::size_t size() const { return count; }
  constexpr dim_t operator[](std::size_t i) const { return items[i]; }
  constexpr bool operator==(const number_list&) const = default;
};

inline void describe_numbers(description& d, std::string_view option, const number_list& list) {
  std::string text = "(";
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(list[i]);
  }
  d.add(option, std::string_view{text += ')'});
}

}  // namespace ikebana::ops
