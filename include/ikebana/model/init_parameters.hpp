#pragma once

#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/model/model.hpp"
#include "ikebana/model/named_parameters.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/path_pattern.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/unknown_path.hpp"

namespace ikebana {

namespace detail {

/// The first of the patterns that matches no parameter of Model, or their number.
template <class Model, literal... Patterns>
constexpr std::size_t useless_pattern() {
  constexpr auto program = Model::lowered();
  const std::string_view patterns[] = {{Patterns.data, Patterns.size()}...};
  for (std::size_t k = 0; k < sizeof...(Patterns); ++k) {
    bool is_used = false;
    for (const auto& p : program.all_parameters())
      is_used = is_used || matches_pattern(program.path(p).view(), patterns[k]);
    if (!is_used) return k;
  }
  return sizeof...(Patterns);
}

/// The refusal of a pattern that matches nothing; no type if there is none.
template <class Model, std::size_t K, literal... Patterns>
struct pattern_refusal {
  using type = decltype(refuse_path<std::tuple_element_t<K, std::tuple<hana_string_t<Patterns>...>>,
                                    parameter_paths<Model>>());
};
template <class Model, std::size_t K, literal... Patterns>
requires(K == sizeof...(Patterns)) struct pattern_refusal<Model, K, Patterns...> {
};

}  // namespace detail

/// Calls f(view, seed) for every parameter whose path matches one of the patterns, in PyTorch's
/// order, with a seed of its own: `init_parameters<"*.weight">(model, seed{1}, [](auto w, seed s) {
/// init::orthogonal(w, s); })`. In a pattern, `*` stands for any characters. A pattern that matches
/// nothing is a compile error.
template <detail::literal... Patterns, class Model, class F>
requires(sizeof...(Patterns) > 0 && detail::useless_pattern<Model, Patterns...>() ==
                                        sizeof...(Patterns)) void init_parameters(Model& m, seed s,
                                                                                  F&& f) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const auto call = [&]<std::size_t K>(std::integral_constant<std::size_t, K>) {
      constexpr path_text path = detail::parameter_path<Model, K>();
      if constexpr ((matches_pattern(path.view(), {Patterns.data, Patterns.size()}) || ...))
        f(m[detail::parameter_name<Model, K>(std::make_index_sequence<path.size()>{})],
          s.at(path.view()));
    };
    (call(std::integral_constant<std::size_t, I>{}), ...);
  }
  (std::make_index_sequence<Model::parameter_count>{});
  m.parameters_changed();
}

/// A pattern that matches nothing is refused. Of f, only that it is there: a local type of a
/// function without a body is an error of its own.
template <detail::literal... Patterns, class Model>
auto init_parameters(Model&, seed, ...) ->
    typename detail::pattern_refusal<Model, detail::useless_pattern<Model, Patterns...>(),
                                     Patterns...>::type;

}  // namespace ikebana
