#pragma once

#include <boost/hana/append.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/module/arithmetic.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

/// x + f(x), where f runs the children one after another (He et al., Deep Residual Learning, 2015).
/// Children are named as those of `sequential`. The sum is a separate child named "add".
template <class... Children>
struct residual {
  static constexpr std::string_view kind = "residual";
  static constexpr const char* own_child =
      "child {expected} has this name, which is that of the sum of a residual, child {got}";
  using sum = named<boost::hana::string<'a', 'd', 'd'>, add>;
  boost::hana::tuple<Children..., sum> children{};

  constexpr residual() = default;
  constexpr explicit residual(Children... c) requires(sizeof...(Children) > 0)
      : children{std::move(c)..., sum{}} {}

  static constexpr auto wiring() {
    constexpr std::size_t n = sizeof...(Children);
    wiring_table<n + 1> w;
    for (std::size_t i = 0; i < n; ++i)
      w.steps[i] = {static_cast<int>(i), {static_cast<int>(i)}, 1};
    w.steps[n] = {static_cast<int>(n), {static_cast<int>(n), 0}, 2};
    w.outputs[0] = static_cast<int>(n + 1);
    return w;
  }

  /// The last child is the sum.
  template <class... C>
  static constexpr auto rebind(C... c) {
    return rebind_children(boost::hana::tuple<C...>{std::move(c)...},
                           std::make_index_sequence<sizeof...(C) - 1>{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <class... C, std::size_t... I>
  static constexpr auto rebind_children(boost::hana::tuple<C...> c, std::index_sequence<I...>) {
    return residual<std::remove_cvref_t<decltype(boost::hana::at_c<I>(c))>...>(
        boost::hana::at_c<I>(c)...);
  }
};

template <class... Children>
residual(Children...) -> residual<Children...>;
/// A residual of a residual is not a copy of it.
template <class... Children>
residual(residual<Children...>) -> residual<residual<Children...>>;

}  // namespace ikebana
