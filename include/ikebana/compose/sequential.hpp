#pragma once

#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

namespace detail {

/// Whether a module takes exactly n > 1 inputs.
template <class M>
constexpr bool takes_only([[maybe_unused]] std::size_t n) {
  if constexpr (composite_module<M>)
    return n > 1 && static_cast<std::size_t>(wiring_of<M>.inputs) == n;
  else if constexpr (requires { M::takes_all; })
    return M::takes_all;
  else if constexpr (requires(const M& m, const shape& s) { m.infer(s); })
    return false;
  else if constexpr (requires(const M& m, const shape& s) { m.infer(s, s); })
    return n == 2;
  else if constexpr (requires(const M& m, const shape& s) { m.infer(s, s, s); })
    return n == 3;
  else
    return false;
}

/// The number of inputs of a chain that begins with M.
template <class M>
constexpr std::size_t chain_inputs() {
  if constexpr (composite_module<M>)
    return static_cast<std::size_t>(wiring_of<M>.inputs);
  else if constexpr (requires { M::takes_all; })
    return 1;
  else
    return takes_only<M>(2) ? 2 : takes_only<M>(3) ? 3 : 1;
}

/// Whether the first output of M is its result and the others are extra, such as the states of a
/// recurrence. Then a chain may go on with the first alone.
template <class M>
constexpr bool first_output_is_result() {
  if constexpr (output_count<M>() == 1)
    return true;
  else if constexpr (requires { M::first_output_is_result; })
    return M::first_output_is_result;
  else
    return leaf_module<M>;
}

/// A module that cannot take all that the chain gives it is refused when it is lowered. The chain
/// takes the inputs of its first module, or only one.
template <class... Children>
constexpr wiring_table<sizeof...(Children)> chain_wiring(bool one_input = false) {
  constexpr std::size_t n = sizeof...(Children);
  constexpr std::size_t outputs[n + 1] = {output_count<typename unwrap_named<Children>::type>()...,
                                          1};
  constexpr std::size_t inputs[n + 1] = {chain_inputs<typename unwrap_named<Children>::type>()...,
                                         1};
  constexpr bool has_result[n + 1] = {
      first_output_is_result<typename unwrap_named<Children>::type>()..., true};
  wiring_table<n> w;
  w.inputs = static_cast<int>(n == 0 || one_input ? 1 : inputs[0]);
  // Outputs of the last step: `made` values from `first` on.
  int first = 0, values = w.inputs;
  std::size_t made = static_cast<std::size_t>(w.inputs), s = 0;
  [[maybe_unused]] const auto add = [&](bool all) {
    auto& step = w.steps[s];
    step.child = static_cast<int>(s);
    step.input_count = all || (s > 0 && !has_result[s - 1]) ? made : 1;
    for (std::size_t i = 0; i < step.input_count; ++i) step.inputs[i] = first + static_cast<int>(i);
    first = values;
    made = outputs[s++];
    values += static_cast<int>(made);
  };
  (add(takes_only<typename unwrap_named<Children>::type>(made)), ...);
  w.output_count = made;
  for (std::size_t i = 0; i < made; ++i) w.outputs[i] = first + static_cast<int>(i);
  return w;
}

}  // namespace detail

/// Modules one after another: the output of each is the input of the next. If a module has several
/// outputs, the next one takes all of them if it takes that many inputs (`add` after `parallel`),
/// else the first if that is the result and the others are extra (`linear` after `lstm`). Children
/// are modules or named modules (`"fc1"_m = linear<4, 2>{}`); an unnamed child is named by its
/// index, as in PyTorch. Without children it is the identity.
template <class... Children>
struct sequential {
  static constexpr std::string_view kind = "sequential";
  boost::hana::tuple<Children...> children{};

  constexpr sequential() = default;
  constexpr explicit sequential(Children... c) requires(sizeof...(Children) > 0)
      : children{std::move(c)...} {}

  static constexpr bool first_output_is_result = [] {
    constexpr std::size_t n = sizeof...(Children);
    constexpr bool of[n + 1] = {
        true, detail::first_output_is_result<typename detail::unwrap_named<Children>::type>()...};
    return of[n];
  }();

  static constexpr auto wiring() { return detail::chain_wiring<Children...>(); }

  template <class... C>
  static constexpr auto rebind(C... c) {
    return sequential<C...>(std::move(c)...);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

template <class... Children>
sequential(Children...) -> sequential<Children...>;
template <class... Children>
requires(detail::have_no_module<Children...>) sequential(Children...)
->sequential<detail::refused_child<detail::later<Children...>>>;
template <class Misuse>
struct sequential<detail::no_module<Misuse>>;
/// A sequential of one sequential is not a copy of it.
template <class... Children>
sequential(sequential<Children...>) -> sequential<sequential<Children...>>;

}  // namespace ikebana
