#pragma once

#include <cstddef>

#include "ikebana/deploy/half_weights.hpp"
#include "ikebana/deploy/quantized.hpp"
#include "ikebana/module/module.hpp"

namespace ikebana::detail {

template <class Leaf>
concept quantizable = requires {
  sizeof(quantized<Leaf>);
};

/// Replaces what can be quantised.
struct quantize_leaf {
  template <std::size_t, leaf_module Leaf>
  static constexpr auto replace(const Leaf& leaf) {
    if constexpr (quantizable<Leaf>)
      return quantized<Leaf>(leaf);
    else
      return leaf;
  }
};

/// Replaces what multiplies weights.
template <half_number Half>
struct halve_leaf {
  template <std::size_t, leaf_module Leaf>
  static constexpr auto replace(const Leaf& leaf) {
    if constexpr (multiplies_weights<Leaf>)
      return half_weights<Leaf, Half>(leaf);
    else
      return leaf;
  }
};

}  // namespace ikebana::detail
