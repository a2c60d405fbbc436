#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/lstm_step.hpp"

namespace ikebana::detail {

/// What a stateful lstm over one sequence keeps for single-step calls: a stamp, a copy of the
/// parameters, and the packed parameters.
constexpr dim_t lstm_step_parameters(dim_t in, dim_t hidden) {
  return (4 * hidden * (in + hidden + 2) + 15) / 16 * 16;
}
constexpr dim_t lstm_step_memory(dim_t in, dim_t hidden) {
  return 16 + lstm_step_parameters(in, hidden) + cpu::lstm_step_size(in, hidden);
}

/// The packed parameters, packed again if they have changed. A stamp that matches the last call's
/// skips the comparison with the copy.
template <class Context, class T = typename Context::value_type>
const T* packed_lstm_step(const Context& c, dim_t in, dim_t hidden, bool has_bias, T* memory) {
  T* const seen = memory + 16;
  T* const packed = seen + lstm_step_parameters(in, hidden);
  const std::uint64_t stamp = c.parameter_stamp();
  if (stamp != 0 && std::memcmp(memory, &stamp, sizeof(stamp)) == 0) return packed;
  const dim_t sizes[] = {4 * hidden * in, 4 * hidden * hidden, 4 * hidden, 4 * hidden};
  bool same = true;
  T* next = seen;
  for (std::size_t i = 0; i < (has_bias ? 4 : 2); next += sizes[i++]) {
    const auto bytes = static_cast<std::size_t>(sizes[i]) * sizeof(T);
    if (std::memcmp(next, c.parameter(i), bytes) == 0) continue;
    std::memcpy(next, c.parameter(i), bytes);
    same = false;
  }
  if (!same)
    cpu::pack_lstm_step<T>(in, hidden, c.parameter(0), c.parameter(1),
                           has_bias ? c.parameter(2) : nullptr, has_bias ? c.parameter(3) : nullptr,
                           packed);
  std::memcpy(memory, &stamp, sizeof(stamp));
  return packed;
}

/// Forward of one step of a stateful lstm with one layer, one direction and one sequence.
template <class Context>
void run_lstm_step(const Context& c, dim_t in, dim_t hidden, bool has_bias, dim_t offset) {
  using T = typename Context::value_type;
  T* const kept = c.template saved<T>(0);
  cpu::run_lstm_step<T>(
      {.in = in,
       .hidden = hidden,
       .packed = packed_lstm_step(c, in, hidden, has_bias, c.template buffer<T>(2) + offset),
       .x = c.input(0),
       .h = c.template buffer<T>(0),
       .c = c.template buffer<T>(1),
       .gates = kept,
       .h_before = kept + 4 * hidden,
       .c_before = kept + 5 * hidden,
       .tanh_c = kept + 6 * hidden,
       .y = c.output(0),
       .h_after = c.output(1),
       .c_after = c.output(2)});
}

}  // namespace ikebana::detail
