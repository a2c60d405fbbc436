#pragma once

#include "ikebana/core/language.hpp"
#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana::cpu {

/// Whether a factor of a matrix product is read as it stands or transposed.
enum class transpose : bool { no, yes };

}  // namespace ikebana::cpu
