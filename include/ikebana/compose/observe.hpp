#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/module/lazy.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/module/unknown_path.hpp"

namespace ikebana {

namespace detail {

/// A composition with the outputs of some of its modules as further outputs.
template <composite_module M, literal... Paths>
struct observed : M {
  static constexpr std::array<std::string_view, sizeof...(Paths)> observed_paths{
      std::string_view{Paths.data, Paths.size()}...};
  static constexpr bool first_output_is_result = false;

  constexpr observed() = default;
  constexpr explicit observed(const M& m) : M(m) {}

  static constexpr auto wiring() {
    auto w = wiring_of<M>;
    for (std::size_t i = 0; i < sizeof...(Paths); ++i) w.outputs[w.output_count++] = -1;
    return w;
  }
  template <class... C>
  static constexpr auto rebind(C... c) {
    const auto m = M::rebind(std::move(c)...);
    return observed<std::remove_const_t<decltype(m)>, Paths...>(m);
  }
  /// Of a graph.
  template <class Trace, class... C>
  static constexpr auto retrace(C... c) {
    const auto m = M::template retrace<Trace>(std::move(c)...);
    return observed<std::remove_const_t<decltype(m)>, Paths...>(m);
  }
  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

template <any_module M>
struct observable_paths {
  static constexpr const char* what = "module";
  static constexpr std::size_t count = outline_of<M>.scopes.size();
  static constexpr path_text path(std::size_t i) {
    return scope_path(outline_of<M>.scopes.data(), static_cast<int>(i));
  }
  template <literal Path>
  static constexpr bool has = [] {
    for (std::size_t i = 0; i < count; ++i)
      if (path(i).view() == std::string_view{Path.data, Path.size()}) return true;
    return false;
  }();
};

template <class M, literal Path, literal... Rest>
constexpr auto find_observe_refusal() {
  if constexpr (!observable_paths<M>::template has<Path>)
    return find_path_refusal<path_text{std::string_view{Path.data, Path.size()}},
                             observable_paths<M>>();
  else if constexpr (sizeof...(Rest) > 0)
    return find_observe_refusal<M, Rest...>();
  else
    return accepted{};
}

}  // namespace detail

/// A network with inner values as further outputs, after its own: `observe<"encoder", "fc1">(net)`
/// gives the output of net and those of the modules at these paths, the first of several and that
/// of the last call. Paths of parameters do not change. So a loss has terms of inner values, and
/// hooks are not needed to see them: `model.train_step(x, t, [](auto y, auto h, auto t) { return
/// cross_entropy{}(y, t) + 1e-3 * mean(square(h)); }, optimizer)`. At most 8 outputs. Does not
/// compile if there is no such module, if it belongs to an alternative of a `choose`, or if its
/// output is an output already.
template <detail::literal... Paths, composite_module M>
requires(sizeof...(Paths) > 0 &&
         std::is_same_v<decltype(detail::find_observe_refusal<M, Paths...>()),
                        detail::accepted>) constexpr auto observe(const M& m) {
  static_assert(detail::output_count<M>() + sizeof...(Paths) <= max_arity,
                "ikebana: observe makes at most 8 outputs");
  return detail::observed<M, Paths...>(m);
}
template <detail::literal... Paths, composite_module M>
requires(sizeof...(Paths) > 0 &&
         !std::is_same_v<decltype(detail::find_observe_refusal<M, Paths...>()),
                         detail::accepted>) auto observe(const M&)
    -> decltype(detail::declared(detail::find_observe_refusal<M, Paths...>()));

}  // namespace ikebana
