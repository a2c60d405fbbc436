#pragma once

#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana::cpu {

/// The functions of one element that a product or a convolution applies to its result while that is
/// still in a register or the first-level cache. `gelu_tanh` is the approximation by tanh.
enum class activation : unsigned char { none, relu, tanh, sigmoid, silu, gelu, gelu_tanh };

/// A bit for each that is not `none`.
constexpr unsigned one_activation(activation f) { return 1u << static_cast<unsigned>(f) & ~1u; }
namespace detail {
inline constexpr unsigned every_activation = 0x7E;
}  // namespace detail

}  // namespace ikebana::cpu
