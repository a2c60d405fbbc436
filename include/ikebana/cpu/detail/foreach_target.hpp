// No include guard: includes the file named by IKEBANA_CPU_BODY once for each instruction set,
// inside its namespace and with its target switched on, so that one source is built for all of them
// without any -m flag. Within the body, IKEBANA_CPU_WIDTH is the bytes of a vector register (0:
// scalar) and IKEBANA_CPU_INLINE marks what must be inlined; a lambda of the
// elements i to i + lanes begins with IKEBANA_CPU_TERMS. Where IKEBANA_CPU_SETS is 1 or 2, the
// body is only built for what IKEBANA_CPU_DISPATCH_ONE_WIDTH or _AVX calls. The body includes
// nothing itself, but for parts of it that differ by set. A further set is one more block here, one
// more name in targets.hpp and dispatch.hpp, and a file of what vec<T> needs of it.
#include "ikebana/cpu/detail/targets.hpp"

#if IKEBANA_CPU_HERE
#include "ikebana/cpu/detail/intrinsics.hpp"

#ifndef IKEBANA_CPU_SETS
#define IKEBANA_CPU_SETS 3
#endif

#define IKEBANA_CPU_INLINE [[gnu::always_inline]] inline
#define IKEBANA_CPU_TERMS [=](dim_t i, dim_t lanes) __attribute__((always_inline))

#if IKEBANA_CPU_FLOOR == 0
#define IKEBANA_CPU_WIDTH 0
IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu::scalar {
#include IKEBANA_CPU_BODY
}
IKEBANA_CPU_END_SMALL
#undef IKEBANA_CPU_WIDTH
#endif

#if IKEBANA_CPU_ARM64
#define IKEBANA_CPU_WIDTH 16
namespace ikebana::cpu::neon {
#include IKEBANA_CPU_BODY
}
#undef IKEBANA_CPU_WIDTH
#endif

#if IKEBANA_CPU_X86

#if IKEBANA_CPU_SSE42 && (IKEBANA_CPU_SETS == 3 || IKEBANA_CPU_FLOOR != 0)
#define IKEBANA_CPU_WIDTH 16
#if IKEBANA_CPU_FLOOR < 2
IKEBANA_CPU_BEGIN_TARGET("sse4.2")
#endif
namespace ikebana::cpu::sse42 {
#include IKEBANA_CPU_BODY
}
#if IKEBANA_CPU_FLOOR < 2
IKEBANA_CPU_END_TARGET
#endif
#undef IKEBANA_CPU_WIDTH
#endif

#if IKEBANA_CPU_FLOOR == 3 || (IKEBANA_CPU_FLOOR < 3 && !IKEBANA_CPU_ONE)
#define IKEBANA_CPU_WIDTH 32
#if IKEBANA_CPU_FLOOR < 3
IKEBANA_CPU_BEGIN_TARGET("avx2,fma")
#endif
namespace ikebana::cpu::avx2 {
#include IKEBANA_CPU_BODY
}
#if IKEBANA_CPU_FLOOR < 3
IKEBANA_CPU_END_TARGET
#endif
#undef IKEBANA_CPU_WIDTH
#endif

#if IKEBANA_CPU_FLOOR == 4 || \
    (!IKEBANA_CPU_ONE && (IKEBANA_CPU_SETS != 1 || IKEBANA_CPU_FLOOR != 0))
#define IKEBANA_CPU_WIDTH 64
#if IKEBANA_CPU_FLOOR < 4
IKEBANA_CPU_BEGIN_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif
namespace ikebana::cpu::avx512 {
#include IKEBANA_CPU_BODY
}
#if IKEBANA_CPU_FLOOR < 4
IKEBANA_CPU_END_TARGET
#endif
#undef IKEBANA_CPU_WIDTH
#endif

#endif

#undef IKEBANA_CPU_INLINE
#undef IKEBANA_CPU_TERMS
#endif
#undef IKEBANA_CPU_BODY
#undef IKEBANA_CPU_SETS
