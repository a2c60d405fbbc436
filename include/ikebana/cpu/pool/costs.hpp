#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"

/// The constants of the choice among algorithms of pools, and of their batches. They change the
/// bits of no result.
namespace ikebana::cpu::detail::pool_costs {

/// Gradients of two by two go element by element where rows are of fewer results.
inline constexpr dim_t least_halved_row = 8;
/// Windows of as many elements are seldom a whole plane.
inline constexpr dim_t most_of_window = 9;
/// The bytes of a batch of joined rows of separable windows, and the most rows.
inline constexpr dim_t batch_bytes = dim_t{16} * 1024, most_rows = 8;
/// The bytes of joined pairs of narrow planes that are halved together.
inline constexpr dim_t narrow_bytes = dim_t{4} * 1024;
/// So many bytes of planes are cleared before gradients are scattered to them.
inline constexpr dim_t cleared_bytes = dim_t{8} * 1024;

}  // namespace ikebana::cpu::detail::pool_costs
