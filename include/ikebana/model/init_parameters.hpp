#pragma once

#include <cstddef>
#include <utility>

#include "ikebana/model/model.hpp"
#include "ikebana/model/named_parameters.hpp"
#include "ikebana/model/state/patterns.hpp"
#include "ikebana/module/named.hpp"

namespace ikebana {

/// Calls f(view, seed) for every parameter whose path matches one of the patterns, in PyTorch's
/// order, with a seed of its own: `init_parameters<"*.weight">(model, seed{1}, [](auto w, seed s) {
/// init::orthogonal(w, s); })`. In a pattern, `*` stands for any characters; the path of a module
/// stands for its parameters. A pattern that matches nothing is a compile error.
template <detail::literal... Patterns, class Model, class F>
requires(sizeof...(Patterns) > 0 &&
         detail::all_match<Model, detail::pattern_list<Patterns...>>) void init_parameters(Model& m,
                                                                                           seed s,
                                                                                           F&& f) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const auto call = [&]<std::size_t K>(std::integral_constant<std::size_t, K>) {
      constexpr path_text path = detail::parameter_path<Model, K>();
      if constexpr (detail::pattern_list<Patterns...>::matches(path.view()))
        f(m[detail::parameter_name<Model, K>(std::make_index_sequence<path.size()>{})],
          s.at(path.view()));
    };
    (call(std::integral_constant<std::size_t, I>{}), ...);
  }
  (std::make_index_sequence<Model::parameter_count>{});
  m.parameters_changed();
}

/// Refuses a pattern that matches nothing. f is not deduced, because the type of a local lambda in
/// the signature of a function without a body is an error of its own.
template <detail::literal... Patterns, class Model>
auto init_parameters(Model&, seed, ...)
    -> detail::pattern_refusal<Model, detail::pattern_list<Patterns...>>;

}  // namespace ikebana
