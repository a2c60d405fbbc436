#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/gated_step.hpp"

namespace ikebana::detail {

/// What a stateful lstm or gru over one sequence keeps for single-step calls: a stamp, a copy of
/// the parameters, and the packed parameters.
template <class Gates>
constexpr dim_t single_step_parameters(dim_t in, dim_t hidden) {
  return (Gates::count * hidden * (in + hidden + 2) + 15) / 16 * 16;
}
template <class Gates>
constexpr dim_t single_step_memory(dim_t in, dim_t hidden) {
  return 16 + single_step_parameters<Gates>(in, hidden) +
         cpu::gated_step_size(Gates::count, in, hidden);
}

/// The packed parameters, packed again if they have changed. A stamp that matches the last call's
/// skips the comparison with the copy.
template <class Gates, class Context, class T = typename Context::value_type>
const T* packed_single_step(const Context& c, dim_t in, dim_t hidden, bool has_bias, T* memory) {
  T* const seen = memory + 16;
  T* const packed = seen + single_step_parameters<Gates>(in, hidden);
  const std::uint64_t stamp = c.parameter_stamp();
  if (stamp != 0 && std::memcmp(memory, &stamp, sizeof(stamp)) == 0) return packed;
  const dim_t rows = Gates::count * hidden, sizes[] = {rows * in, rows * hidden, rows, rows};
  bool same = true;
  T* next = seen;
  for (std::size_t i = 0; i < (has_bias ? 4 : 2); next += sizes[i++]) {
    const auto bytes = static_cast<std::size_t>(sizes[i]) * sizeof(T);
    if (std::memcmp(next, c.parameter(i), bytes) == 0) continue;
    std::memcpy(next, c.parameter(i), bytes);
    same = false;
  }
  if (!same) {
    cpu::pack_gated_step<T>(Gates::count, in, hidden, c.parameter(0), c.parameter(1),
                            has_bias ? c.parameter(2) : nullptr,
                            has_bias ? c.parameter(3) : nullptr, packed);
  }
  std::memcpy(memory, &stamp, sizeof(stamp));
  return packed;
}

/// Forward of one step of a stateful lstm or gru with one layer, one direction and one sequence.
template <class Gates, class Context>
void run_single_step(const Context& c, dim_t in, dim_t hidden, bool has_bias, dim_t offset) {
  using T = typename Context::value_type;
  T* const kept = c.template saved<T>(0);
  const T* const packed = packed_single_step<Gates>(
      c, in, hidden, has_bias, c.template buffer<T>(Gates::has_cell ? 2 : 1) + offset);
  constexpr bool cell = Gates::has_cell;
  const cpu::gated_step<T> step{.in = in,
                                .hidden = hidden,
                                .packed = packed,
                                .x = c.input(0),
                                .h = c.template buffer<T>(0),
                                .c = cell ? c.template buffer<T>(1) : nullptr,
                                .gates = c.backward_follows() ? kept : nullptr,
                                .h_before = kept + Gates::count * hidden,
                                .c_before = kept + 5 * hidden,
                                .extra = kept + (cell ? 6 : 4) * hidden,
                                .y = c.output(0),
                                .h_after = c.output(1),
                                .c_after = cell ? c.output(2) : nullptr};
  if constexpr (cell)
    cpu::run_lstm_step<T>(step);
  else
    cpu::run_gru_step<T>(step);
}

}  // namespace ikebana::detail
