#pragma once

#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <string_view>
#include <utility>

#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

/// Modules in parallel on the same input. The outputs are those of all children in order, at most
/// max_arity. `sequential(parallel(a, b), concat<dim<1>>{})` joins branches. Children are named as
/// those of `sequential`.
template <class... Children>
struct parallel {
  static_assert((detail::output_count<typename detail::unwrap_named<Children>::type>() + ... +
                 std::size_t{0}) <= max_arity,
                "ikebana: the branches of parallel have at most eight outputs together");

  static constexpr std::string_view kind = "parallel";
  boost::hana::tuple<Children...> children{};

  constexpr parallel() = default;
  constexpr explicit parallel(Children... c) requires(sizeof...(Children) > 0)
      : children{std::move(c)...} {}

  static constexpr auto wiring() {
    constexpr std::size_t n = sizeof...(Children);
    constexpr std::size_t made[n + 1] = {
        detail::output_count<typename detail::unwrap_named<Children>::type>()..., 0};
    wiring_table<n> w;
    w.output_count = 0;
    for (std::size_t s = 0; s < n; ++s) {
      w.steps[s].child = static_cast<int>(s);
      for (std::size_t i = 0; i < made[s]; ++i, ++w.output_count)
        w.outputs[w.output_count] = static_cast<int>(w.output_count) + 1;
    }
    return w;
  }

  template <class... C>
  static constexpr auto rebind(C... c) {
    return parallel<C...>(std::move(c)...);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

template <class... Children>
parallel(Children...) -> parallel<Children...>;
template <class... Children>
requires(detail::have_no_module<Children...>) parallel(Children...)
->parallel<detail::refused_child<detail::later<Children...>>>;
template <class Misuse>
struct parallel<detail::no_module<Misuse>>;
/// A parallel of one parallel is not a copy of it.
template <class... Children>
parallel(parallel<Children...>) -> parallel<parallel<Children...>>;

}  // namespace ikebana
