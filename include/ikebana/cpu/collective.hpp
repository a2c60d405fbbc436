#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"

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

IKEBANA_CPU_KERNEL(average_slice)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
