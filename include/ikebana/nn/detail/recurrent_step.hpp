#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/recurrent.hpp"

namespace ikebana::detail {

/// One time step of one direction of one layer, as the gates see it. `extra` holds what they keep
/// for backward besides the gates.
template <class T>
struct recurrent_step {
  dim_t sequences, hidden;
  cpu::rows_of<T> gates, extra[2], h, c, from_h, before = {}, y = {};
};
template <class T>
struct recurrent_step_backward {
  dim_t sequences, hidden;
  cpu::rows_of<const T> gates, extra[2], h_before, dy;
  cpu::rows_of<T> dh, dc, dgates, dfrom_h;
};

}  // namespace ikebana::detail
