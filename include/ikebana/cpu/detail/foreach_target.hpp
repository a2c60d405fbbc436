// No include guard: includes the file named by IKEBANA_CPU_BODY once for each instruction set,
// inside its namespace and with its target switched on, so that one source is built for all of them
// without any -m flag. Within the body, IKEBANA_CPU_WIDTH is the bytes of a vector register (0:
// scalar) and IKEBANA_CPU_INLINE marks what must be inlined. The body includes nothing itself. A
// further set is one more block here and one more name in targets.hpp.
#include "ikebana/cpu/detail/targets.hpp"

#if IKEBANA_CPU_HERE
#include "ikebana/cpu/detail/intrinsics.hpp"

#define IKEBANA_CPU_INLINE [[gnu::always_inline]] inline

#define IKEBANA_CPU_WIDTH 0
namespace ikebana::cpu::scalar {
#include IKEBANA_CPU_BODY
}
#undef IKEBANA_CPU_WIDTH

#if IKEBANA_CPU_X86

#define IKEBANA_CPU_WIDTH 32
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
namespace ikebana::cpu::avx2 {
#include IKEBANA_CPU_BODY
}
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef IKEBANA_CPU_WIDTH

#define IKEBANA_CPU_WIDTH 64
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif
namespace ikebana::cpu::avx512 {
#include IKEBANA_CPU_BODY
}
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef IKEBANA_CPU_WIDTH

#endif

#undef IKEBANA_CPU_INLINE
#endif
#undef IKEBANA_CPU_BODY
