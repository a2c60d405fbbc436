#pragma once

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
struct start_dim_option;
struct end_dim_option;
}  // namespace detail

/// The first dimension of a range; negative counts from the end.
template <dim_t N>
struct start_dim {
  using option = detail::start_dim_option;
  static constexpr dim_t value = N;
};

/// The last dimension of a range, inclusive; negative counts from the end.
template <dim_t N>
struct end_dim {
  using option = detail::end_dim_option;
  static constexpr dim_t value = N;
};

/// Merges the dimensions start_dim to end_dim into one. A view: it copies nothing. Options:
/// start_dim<N> (default 1), end_dim<N> (-1).
template <class... Options>
struct flatten {
  static_assert(detail::option_set<start_dim<1>, end_dim<-1>>::template accepts<Options...>,
                "ikebana: flatten takes the options start_dim and end_dim, each once");

  static constexpr std::string_view kind = "flatten";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_view = true;
  static constexpr dim_t start = detail::option_or<start_dim<1>, Options...>::value;
  static constexpr dim_t end = detail::option_or<end_dim<-1>, Options...>::value;

  constexpr inferred infer(const shape& in) const {
    const auto rank = static_cast<dim_t>(in.rank());
    const dim_t dims = rank == 0 ? 1 : rank;
    if (start < -dims || start >= dims)
      return diagnostic{
          "flatten expects start_dim within {expected} dimensions, got {number} (input {input})",
          dims, start, in};
    if (end < -dims || end >= dims)
      return diagnostic{
          "flatten expects end_dim within {expected} dimensions, got {number} (input {input})",
          dims, end, in};
    const dim_t first = start < 0 ? start + dims : start;
    const dim_t last = end < 0 ? end + dims : end;
    if (first > last)
      return diagnostic{
          "flatten expects start_dim of at most end_dim = {expected}, got {got} (input {input})",
          last, first, in};
    if (rank == 0) return shape{1};
    shape out;
    for (dim_t i = 0; i < first; ++i) out.push_back(in[static_cast<std::size_t>(i)]);
    out.push_back(in.numel(static_cast<std::size_t>(first), static_cast<std::size_t>(last) + 1));
    for (dim_t i = last + 1; i < rank; ++i) out.push_back(in[static_cast<std::size_t>(i)]);
    return out;
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const {
    d.add("start_dim", std::to_string(start)).add("end_dim", std::to_string(end));
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace ikebana
