#pragma once

#include "ikebana/model/state/views_by_path.hpp"
#include "ikebana/module/path_pattern.hpp"
#include "ikebana/module/unknown_path.hpp"

namespace ikebana::detail {

/// Whether each pattern matches a parameter of Model.
template <class Model, class Patterns>
inline constexpr bool all_match =
    Patterns::find_useless(parameter_paths<Model>{}) == Patterns::size;

/// The refusal of the first pattern that matches nothing; no type if there is none.
template <class Model, class Patterns>
struct find_pattern_refusal {};
template <class Model, class Patterns>
requires(!all_match<Model, Patterns>) struct find_pattern_refusal<Model, Patterns> {
  using type =
      decltype(refuse_path<
               typename Patterns::template nth<Patterns::find_useless(parameter_paths<Model>{})>,
               parameter_paths<Model>>());
};
template <class Model, class Patterns>
using pattern_refusal = typename find_pattern_refusal<Model, Patterns>::type;

}  // namespace ikebana::detail
