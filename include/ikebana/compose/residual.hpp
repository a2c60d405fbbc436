#pragma once

#include <algorithm>
#include <boost/hana/append.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/module/arithmetic.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

/// x + f(x), where f runs the children one after another, as `sequential` does (He et al., Deep
/// Residual Learning, 2015).
/// Children are named as those of `sequential`. The sum is a separate child named "add".
template <class... Children>
struct residual {
  static constexpr std::string_view kind = "residual";
  static constexpr const char* own_child =
      "child {expected} has this name, which is that of the sum of a residual, child {got}";
  using sum = named<boost::hana::string<'a', 'd', 'd'>, detail::equal_add>;
  boost::hana::tuple<Children..., sum> children{};

  constexpr residual() = default;
  constexpr explicit residual(Children... c) requires(sizeof...(Children) > 0)
      : children{std::move(c)..., sum{}} {}

  static constexpr auto wiring() {
    constexpr std::size_t n = sizeof...(Children);
    constexpr auto chain = detail::chain_wiring<Children...>(true);
    constexpr bool takes_first = sequential<Children...>::first_output_is_result;
    constexpr std::size_t taken = takes_first ? 1 : std::min(chain.output_count, max_arity - 1);
    wiring_table<n + 1> w;
    for (std::size_t s = 0; s < n; ++s) {
      w.steps[s].child = static_cast<int>(s);
      w.steps[s].input_count = chain.steps[s].input_count;
      for (std::size_t i = 0; i < w.steps[s].input_count; ++i)
        w.steps[s].inputs[i] = chain.steps[s].inputs[i];
    }
    auto& sum_step = w.steps[n];
    sum_step.child = static_cast<int>(n);
    sum_step.input_count = taken + 1;
    for (std::size_t i = 0; i < taken; ++i) sum_step.inputs[i] = chain.outputs[i];
    // After the values of the chain, of which its outputs are the last.
    w.outputs[0] = chain.outputs[chain.output_count - 1] + 1;
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
template <class... Children>
requires(detail::have_no_module<Children...>) residual(Children...)
->residual<detail::refused_child<detail::later<Children...>>>;
template <class Misuse>
struct residual<detail::no_module<Misuse>>;
/// A residual of a residual is not a copy of it.
template <class... Children>
residual(residual<Children...>) -> residual<residual<Children...>>;

}  // namespace ikebana
