#pragma once

#include <cstdint>
#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/detail/bf16-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/collective-inl.hpp"
#define IKEBANA_CPU_SETS 1
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// The arithmetic of collectives over memory that all ranks can see. None allocates or throws.
namespace ikebana::cpu {

/// For i in [offset, offset + n): every ranks[r][i] becomes scale * (ranks[0][i] + ranks[1][i] +
/// ...), added in the order of ranks, so the bits depend on nothing else. Ranks that each do one
/// slice reduce in place without a copy.
template <class T>
void average_slice(dim_t n, T* const* ranks, int world, dim_t offset, T scale) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(average_ranks<T>)(n, ranks, world, offset, scale);
}

/// Rounds to the nearest bfloat16, ties to even; not-a-number becomes the quiet 0x7FC0 with its
/// sign. A double is rounded to float before.
template <class T>
void to_bf16(dim_t n, const T* x, std::uint16_t* y) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(narrow_to_bf16<T>)(n, x, y);
}
template <class T>
void from_bf16(dim_t n, const std::uint16_t* x, T* y) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(widen_from_bf16<T>)(n, x, y);
}
/// x = from_bf16(to_bf16(x)), in place.
template <class T>
void round_to_bf16(dim_t n, T* x) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(round_array_to_bf16<T>)(n, x);
}

IKEBANA_CPU_KERNEL(average_slice)
IKEBANA_CPU_KERNEL(to_bf16)
IKEBANA_CPU_KERNEL(from_bf16)
IKEBANA_CPU_KERNEL(round_to_bf16)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
