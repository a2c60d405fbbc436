#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

namespace detail {
struct unflattened_size_option;
}  // namespace detail

/// The extents that a dimension is divided into. One may be `dynamic`: it is what the others leave.
template <dim_t... N>
struct unflattened_size {
  using option = detail::unflattened_size_option;
  static_assert(((N < detail::option_limit) && ...),
                "ikebana: unflattened_size takes numbers below 2^31");
  static constexpr std::array<dim_t, sizeof...(N)> values{N...};
};

/// Divides a dimension into several, the inverse of flatten. A view: it copies nothing. Options:
/// unflattened_size<..> (required), dim<N> (default 1).
template <class... Options>
struct unflatten {
  static_assert(
      detail::option_set<dim<1>, unflattened_size<>>::template accepts<Options...> &&
          detail::times_given<detail::unflattened_size_option, Options...> == 1,
      "ikebana: unflatten takes the options dim and unflattened_size, which it needs, each once");

  static constexpr std::string_view kind = "unflatten";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_view = true;
  static constexpr dim_t divided = detail::option_or<dim<1>, Options...>::value;
  static constexpr auto sizes = detail::option_or<unflattened_size<>, Options...>::values;

  static constexpr dim_t known = [] {
    dim_t n = 1;
    for (dim_t s : sizes)
      if (s >= 0) n *= s;
    return n;
  }();
  static constexpr std::size_t open = [] {
    std::size_t n = 0;
    for (dim_t s : sizes) n += s < 0;
    return n;
  }();
  static_assert(sizes.size() >= 1 && open <= 1 && (open == 0 || known > 0),
                "ikebana: unflattened_size takes numbers, of which one may be `dynamic`, the "
                "others of that case at least 1");

  constexpr inferred infer(const shape& in) const {
    const auto rank = static_cast<dim_t>(in.rank());
    if (divided < -rank || divided >= rank)
      return diagnostic{
          "unflatten expects a dim within {expected} dimensions, got {number} (input {input})",
          rank, divided, in};
    const auto d = static_cast<std::size_t>(divided < 0 ? divided + rank : divided);
    const dim_t given = in[d];
    if (given >= 0 && (open == 0 ? given != known : given % known != 0))
      return diagnostic{open == 0 ? "unflatten expects an extent of {expected} (the product of the "
                                    "sizes), got {got} (input {input})"
                                  : "unflatten expects an extent divisible by {expected} (the "
                                    "product of the sizes), got {got} (input {input})",
                        known, given, in};
    shape out;
    for (std::size_t i = 0; i < d; ++i) out.push_back(in[i]);
    for (dim_t s : sizes) out.push_back(s >= 0 ? s : given < 0 ? dynamic : given / known);
    for (std::size_t i = d + 1; i < in.rank(); ++i) out.push_back(in[i]);
    return out;
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const {
    d.add("dim", std::to_string(divided)).add("unflattened_size", sizes);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace ikebana
