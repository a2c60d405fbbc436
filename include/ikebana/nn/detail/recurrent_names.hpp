#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "ikebana/core/shape.hpp"
#include "ikebana/core/text.hpp"

namespace ikebana::detail {

/// PyTorch's parameter names, five for each direction of each layer: weight_ih_l0, weight_hh_l0,
/// bias_ih_l0, bias_hh_l0, weight_hr_l0, weight_ih_l0_reverse and so on.
template <std::size_t Layers>
struct recurrent_names {
  static constexpr std::array<std::array<text<32>, 5>, 2 * Layers> table = [] {
    constexpr std::string_view stems[] = {"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l",
                                          "weight_hr_l"};
    std::array<std::array<text<32>, 5>, 2 * Layers> out{};
    for (std::size_t k = 0; k < 2 * Layers; ++k)
      for (std::size_t i = 0; i < 5; ++i) {
        out[k][i].append(stems[i]).append(static_cast<dim_t>(k / 2));
        if (k % 2 == 1) out[k][i].append("_reverse");
      }
    return out;
  }();
};

}  // namespace ikebana::detail
