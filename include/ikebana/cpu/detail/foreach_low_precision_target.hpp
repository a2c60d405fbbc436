// No include guard: includes the file named by IKEBANA_CPU_BODY once for each extension of AVX-512
// that multiplies numbers of 8 or 16 bits, inside its namespace and with its target switched on.
// Within the body IKEBANA_CPU_EXTENSION says which one it is. A sibling of foreach_target.hpp: the
// sets there do everything but the innermost loop, which these replace.
#include "ikebana/cpu/detail/targets.hpp"

#if IKEBANA_CPU_HERE && IKEBANA_CPU_X86 && (!IKEBANA_CPU_ONE || IKEBANA_CPU_FLOOR == 4)
#include "ikebana/cpu/detail/low_precision_intrinsics.hpp"

#define IKEBANA_CPU_INLINE [[gnu::always_inline]] inline
#define IKEBANA_CPU_WIDTH 64
#define IKEBANA_CPU_VNNI 1
#define IKEBANA_CPU_BF16 2
#define IKEBANA_CPU_AMX 3

#define IKEBANA_CPU_EXTENSION IKEBANA_CPU_VNNI
IKEBANA_CPU_BEGIN_TARGET("avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
namespace ikebana::cpu::avx512_vnni {
#include IKEBANA_CPU_BODY
}
IKEBANA_CPU_END_TARGET
#undef IKEBANA_CPU_EXTENSION

#define IKEBANA_CPU_EXTENSION IKEBANA_CPU_BF16
IKEBANA_CPU_BEGIN_TARGET("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
namespace ikebana::cpu::avx512_bf16 {
#include IKEBANA_CPU_BODY
}
IKEBANA_CPU_END_TARGET
#undef IKEBANA_CPU_EXTENSION

#define IKEBANA_CPU_EXTENSION IKEBANA_CPU_AMX
IKEBANA_CPU_BEGIN_TARGET("amx-tile,amx-int8,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
namespace ikebana::cpu::amx {
#include IKEBANA_CPU_BODY
}
IKEBANA_CPU_END_TARGET
#undef IKEBANA_CPU_EXTENSION

#undef IKEBANA_CPU_AMX
#undef IKEBANA_CPU_BF16
#undef IKEBANA_CPU_VNNI
#undef IKEBANA_CPU_WIDTH
#undef IKEBANA_CPU_INLINE
#endif
#undef IKEBANA_CPU_BODY
