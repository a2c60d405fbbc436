#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"

// How counts are divided and rounded.
namespace ikebana::cpu::detail {

constexpr dim_t least(dim_t a, dim_t b) { return a < b ? a : b; }

/// The parts of at most `most` that make up n.
constexpr dim_t parts(dim_t n, dim_t most) { return (n + most - 1) / most; }

/// The largest of these parts where they are of nearly the same size.
constexpr dim_t even_part(dim_t n, dim_t most) { return n <= most ? n : parts(n, parts(n, most)); }

constexpr dim_t rounded_up(dim_t n, dim_t to) { return parts(n, to) * to; }

}  // namespace ikebana::cpu::detail
