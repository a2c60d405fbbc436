#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/recurrent.hpp"

namespace ikebana::detail {

struct recurrent_sizes {
  dim_t layers, directions, input, hidden, projection, steps, batch;
  bool has_bias, batch_first, packed;

  constexpr dim_t out() const { return projection > 0 ? projection : hidden; }
  constexpr dim_t both() const { return directions * out(); }

  /// Whether the weights of the first layer fit in L1.
  constexpr bool is_small() const { return input <= 32 && hidden <= 32; }
  constexpr dim_t packed_hh_size(dim_t gates) const {
    return cpu::packed_recurrent_size(gates, out());
  }
  /// The packed weights of a direction.
  constexpr dim_t packed_size(dim_t gates) const {
    return packed_hh_size(gates) + (is_small() ? cpu::packed_recurrent_size(gates, input) : 0);
  }
  /// The kept weights: for each matrix the instruction set they were packed for, a copy, and the
  /// packed form.
  constexpr dim_t kept_weights(dim_t gates) const { return 2 * (16 + packed_size(gates)); }
};

/// The number of elements that a module needs per row (one step of one sequence) and per sequence.
template <class Gates>
struct recurrent_widths {
  dim_t gates, kept, backward, values, sequence;

  explicit constexpr recurrent_widths(const recurrent_sizes& n)
      : gates{Gates::count * n.hidden},
        kept{gates + n.out() + Gates::extra * n.hidden + (n.projection > 0 ? n.hidden : 0)},
        backward{gates * (Gates::separate ? 2 : 1) + n.projection},
        values{(n.layers - 1 + buffers(n) + (n.packed ? 2 : 0)) * n.both()},
        sequence{n.out() + 2 * n.hidden + (Gates::separate ? gates : 0)} {}

  /// The number of gradients of layer outputs that are live at once.
  static constexpr dim_t buffers(const recurrent_sizes& n) {
    return n.layers < 3 ? n.layers - 1 : 2;
  }
};

}  // namespace ikebana::detail
