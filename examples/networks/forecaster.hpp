#pragma once

#include <tuple>

#include "ikebana/compose/graph.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/lstm.hpp"

// An LSTM that predicts the next value at each step of a series.

namespace forecaster {

namespace ike = ikebana;
using namespace ike::literals;

template <ike::dim_t Hidden, ike::dim_t Layers, class... Options>
using lstm = ike::lazy_lstm<Hidden, ike::num_layers<Layers>, ike::batch_first<true>, Options...>;

/// [N, L, features] -> [N, L, Outputs]. With the option stateful<N>, a call continues where the
/// previous one ended.
template <ike::dim_t Outputs, ike::dim_t Hidden, ike::dim_t Layers, class... Options>
constexpr auto network = ike::graph([](auto x) {
  auto [y, h, c] = "lstm"_m(lstm<Hidden, Layers, Options...>{}, x);
  return "head"_m(ike::lazy_linear<Outputs>{}, y);
});

/// The same with explicit states h, c [Layers, N, Hidden] as inputs and outputs.
template <ike::dim_t Outputs, ike::dim_t Hidden, ike::dim_t Layers>
constexpr auto with_state = ike::graph<"x", "h", "c">([](auto x, auto h, auto c) {
  auto [y, next_h, next_c] = "lstm"_m(lstm<Hidden, Layers>{}, x, h, c);
  return std::tuple("head"_m(ike::lazy_linear<Outputs>{}, y), next_h, next_c);
});

}  // namespace forecaster
