#pragma once

#include <boost/hana/append.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <string_view>
#include <utility>

#include "ikebana/module/arithmetic.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

/// x + f(x), f being the children one after another (He et al., Deep Residual Learning, 2015).
/// Children are named as those of `sequential`. The sum is a child of its own, named "add".
template <class... Children>
struct residual {
  static constexpr std::string_view kind = "residual";
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
    return detail_rebind(boost::hana::tuple<C...>{std::move(c)...},
                         std::make_index_sequence<sizeof...(C) - 1>{});
  }

  template <symbolic... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <class... C, std::size_t... I>
  static constexpr auto detail_rebind(boost::hana::tuple<C...> c, std::index_sequence<I...>) {
    return ikebana::residual(boost::hana::at_c<I>(c)...);
  }
};

template <class... Children>
residual(Children...) -> residual<Children...>;

}  // namespace ikebana
