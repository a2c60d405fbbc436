#pragma once

#include <cstddef>
#include <utility>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

/// N modules like m one after another, each with its own parameters, named 0 to N - 1: `"layers"_m
/// = repeat<6>(layer)`.
template <std::size_t N, any_module M>
constexpr auto repeat(const M& m) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return sequential((static_cast<void>(I), m)...);
  }
  (std::make_index_sequence<N>{});
}

namespace detail::misuse {

IKEBANA_MISUSE(repeat_takes_its_number_in_angle_brackets,
               "repeat takes the number of modules in angle brackets: repeat<6>(layer)");

}  // namespace detail::misuse

template <class... X>
auto repeat(const X&...)
    -> decltype(detail::refuse_for<detail::misuse::repeat_takes_its_number_in_angle_brackets,
                                   X...>());

}  // namespace ikebana
