#pragma once

#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <string_view>
#include <utility>

#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

namespace detail {

template <std::size_t N>
constexpr wiring_table<N> chain_wiring() {
  wiring_table<N> w;
  for (std::size_t i = 0; i < N; ++i) w.steps[i] = {static_cast<int>(i), {static_cast<int>(i)}, 1};
  w.outputs[0] = static_cast<int>(N);
  return w;
}

}  // namespace detail

/// Modules one after another: the output of each is the input of the next. Children are modules or
/// named modules
/// (`"fc1"_m = linear<4, 2>{}`); an unnamed child is named by its index, as in PyTorch. With no
/// child, the identity.
template <class... Children>
struct sequential {
  static constexpr std::string_view kind = "sequential";
  boost::hana::tuple<Children...> children{};

  constexpr sequential() = default;
  constexpr explicit sequential(Children... c) requires(sizeof...(Children) > 0)
      : children{std::move(c)...} {}

  static constexpr auto wiring() { return detail::chain_wiring<sizeof...(Children)>(); }

  template <class... C>
  static constexpr auto rebind(C... c) {
    return sequential<C...>(std::move(c)...);
  }

  template <symbolic... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

template <class... Children>
sequential(Children...) -> sequential<Children...>;

}  // namespace ikebana
