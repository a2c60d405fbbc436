#pragma once

#include "ikebana/core/language.hpp"

// A program that defines IKEBANA_EXTERN_KERNELS is spared the kernels, even their text: they are
// built once, in kernels.cc and low_precision_kernels.cc, the units for others. By default there is
// nothing to link: a unit builds what it uses.
#if defined(IKEBANA_KERNELS_OF) || defined(IKEBANA_ALL_KERNELS) || \
    defined(IKEBANA_LOW_PRECISION_KERNELS)
#define IKEBANA_CPU_FOR_OTHERS 1
#else
#define IKEBANA_CPU_FOR_OTHERS 0
#endif
#if IKEBANA_CPU_FOR_OTHERS || !defined(IKEBANA_EXTERN_KERNELS)
#define IKEBANA_CPU_HERE 1
#else
#define IKEBANA_CPU_HERE 0
#endif

// IKEBANA_CPU_KERNEL says of kernels where they are built, IKEBANA_CPU_CLASS of the functions of a
// class template c<of<T>>, if they are defined outside of it.
#define IKEBANA_CPU_KERNEL_OF(how, f, T) how template decltype(f<T>) f<T>;
#define IKEBANA_CPU_CLASS_OF(how, c, of, T) how template struct c<of<T>>;
#define IKEBANA_CPU_OF_BOTH(what, ...) what(__VA_ARGS__, float) what(__VA_ARGS__, double)
#if defined(IKEBANA_LOW_PRECISION_KERNELS) || !IKEBANA_CPU_HERE
#define IKEBANA_CPU_ONE_KERNEL(f) IKEBANA_CPU_OF_BOTH(IKEBANA_CPU_KERNEL_OF, extern, f)
#define IKEBANA_CPU_CLASS(c, of) IKEBANA_CPU_OF_BOTH(IKEBANA_CPU_CLASS_OF, extern, c, of)
#elif defined(IKEBANA_KERNELS_OF)
#define IKEBANA_CPU_ONE_KERNEL(f) IKEBANA_CPU_KERNEL_OF(, f, IKEBANA_KERNELS_OF)
#define IKEBANA_CPU_CLASS(c, of) IKEBANA_CPU_CLASS_OF(, c, of, IKEBANA_KERNELS_OF)
#elif defined(IKEBANA_ALL_KERNELS)
#define IKEBANA_CPU_ONE_KERNEL(f) IKEBANA_CPU_OF_BOTH(IKEBANA_CPU_KERNEL_OF, , f)
#define IKEBANA_CPU_CLASS(c, of) IKEBANA_CPU_OF_BOTH(IKEBANA_CPU_CLASS_OF, , c, of)
#else
#define IKEBANA_CPU_ONE_KERNEL(f)
#define IKEBANA_CPU_CLASS(c, of)
#endif
// The preprocessor reaches one more name each time that it looks at the text.
#define IKEBANA_CPU_KERNEL(...) IKEBANA_CPU_LOOK(IKEBANA_CPU_NEXT_KERNEL(__VA_ARGS__))
#define IKEBANA_CPU_NEXT_KERNEL(f, ...) \
  IKEBANA_CPU_ONE_KERNEL(f) __VA_OPT__(IKEBANA_CPU_NEXT IKEBANA_CPU_NONE(__VA_ARGS__))
#define IKEBANA_CPU_NEXT() IKEBANA_CPU_NEXT_KERNEL
#define IKEBANA_CPU_NONE ()
#define IKEBANA_CPU_LOOK(...) IKEBANA_CPU_LOOK4(IKEBANA_CPU_LOOK4(IKEBANA_CPU_LOOK4(__VA_ARGS__)))
#define IKEBANA_CPU_LOOK4(...) IKEBANA_CPU_LOOK1(IKEBANA_CPU_LOOK1(IKEBANA_CPU_LOOK1(__VA_ARGS__)))
#define IKEBANA_CPU_LOOK1(...) __VA_ARGS__

// Its name tells what to do if a program that takes its kernels from elsewhere is linked without
// them: linkers name what is undefined.
#if defined(IKEBANA_KERNELS_OF) || defined(IKEBANA_ALL_KERNELS)
namespace ikebana::kernels_are_not_linked {
[[gnu::used]] inline const char
    compile_ikebana_kernels_cc_once_or_do_not_define_IKEBANA_EXTERN_KERNELS = 0;
}  // namespace ikebana::kernels_are_not_linked
#elif !IKEBANA_CPU_HERE
namespace ikebana::kernels_are_not_linked {
extern const char compile_ikebana_kernels_cc_once_or_do_not_define_IKEBANA_EXTERN_KERNELS;
[[gnu::used]] inline const char* const needed =
    &compile_ikebana_kernels_cc_once_or_do_not_define_IKEBANA_EXTERN_KERNELS;
}  // namespace ikebana::kernels_are_not_linked
#endif

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define IKEBANA_CPU_X86 1
#else
#define IKEBANA_CPU_X86 0
#endif
#if defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__) && \
    (defined(__GNUC__) || defined(__clang__))
#define IKEBANA_CPU_ARM64 1
#else
#define IKEBANA_CPU_ARM64 0
#endif

// The only place that lists the instruction sets, beside foreach_target.hpp and the names in
// dispatch.hpp. IKEBANA_CPU_FLOOR is the widest set (a place in `instruction_set`) that the
// compiler's own flags, such as -march=native, allow everywhere: narrower ones are not built, and
// where nothing wider exists either, there is nothing left to choose at run time. Neon is part of
// every processor of its kind, so there any flag that allows more than the first of them counts.
// A unit that takes its kernels from elsewhere has no floor.
#define IKEBANA_CPU_FLOOR 0
#if IKEBANA_CPU_HERE
#if IKEBANA_CPU_X86 && defined(__SSE4_2__)
#undef IKEBANA_CPU_FLOOR
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__) && defined(__AVX2__) && defined(__FMA__)
#define IKEBANA_CPU_FLOOR 4
#elif defined(__AVX2__) && defined(__FMA__)
#define IKEBANA_CPU_FLOOR 3
#else
#define IKEBANA_CPU_FLOOR 2
#endif
#elif IKEBANA_CPU_ARM64 && (defined(__ARM_FEATURE_CRC32) || defined(__ARM_FEATURE_ATOMICS))
#undef IKEBANA_CPU_FLOOR
#define IKEBANA_CPU_FLOOR 1
#endif
#endif

// A program that defines IKEBANA_ONE_INSTRUCTION_SET, in all of its units, has kernels of the floor
// alone: small, for one kind of machine.
#if defined(IKEBANA_ONE_INSTRUCTION_SET) && IKEBANA_CPU_HERE
#define IKEBANA_CPU_ONE 1
#else
#define IKEBANA_CPU_ONE 0
#endif
#if IKEBANA_CPU_ONE && IKEBANA_CPU_ARM64
#undef IKEBANA_CPU_FLOOR
#define IKEBANA_CPU_FLOOR 1
#endif

// Whether SSE4.2 is built: by the kernels' own units, and where the flags promise it. A unit that
// builds what it uses by itself does without, for few machines have nothing wider, and every set
// costs compile time.
#if IKEBANA_CPU_X86 && (IKEBANA_CPU_FLOOR == 2 || \
                        (IKEBANA_CPU_FLOOR == 0 && !IKEBANA_CPU_ONE && IKEBANA_CPU_FOR_OTHERS))
#define IKEBANA_CPU_SSE42 1
#else
#define IKEBANA_CPU_SSE42 0
#endif

#if IKEBANA_CPU_ONE || (IKEBANA_CPU_X86 && IKEBANA_CPU_FLOOR == 4) || \
    (IKEBANA_CPU_ARM64 && IKEBANA_CPU_FLOOR == 1) || (!IKEBANA_CPU_X86 && !IKEBANA_CPU_ARM64)
#define IKEBANA_CPU_DIRECT 1
#else
#define IKEBANA_CPU_DIRECT 0
#endif

#if IKEBANA_CPU_FLOOR == 0
#define IKEBANA_CPU_FLOOR_SET scalar
#elif IKEBANA_CPU_FLOOR == 1
#define IKEBANA_CPU_FLOOR_SET neon
#elif IKEBANA_CPU_FLOOR == 2
#define IKEBANA_CPU_FLOOR_SET sse42
#elif IKEBANA_CPU_FLOOR == 3
#define IKEBANA_CPU_FLOOR_SET avx2
#else
#define IKEBANA_CPU_FLOOR_SET avx512
#endif

// IKEBANA_CPU_DISPATCH(kernel<T>)(arguments) calls a kernel of the active set. Only a macro can
// name a kernel in all of the sets' namespaces at once. Where a set has no kernel of its own,
// because it would gain little, the one of a narrower set stands in its place.
#define IKEBANA_CPU_KERNEL_IN(set, ...) ::ikebana::cpu::set::__VA_ARGS__
#define IKEBANA_CPU_PICK(scalar, sse42, avx2, avx512, ...)                                     \
  (::ikebana::cpu::detail::pick(                                                               \
      &IKEBANA_CPU_KERNEL_IN(scalar, __VA_ARGS__), &IKEBANA_CPU_KERNEL_IN(sse42, __VA_ARGS__), \
      &IKEBANA_CPU_KERNEL_IN(avx2, __VA_ARGS__), &IKEBANA_CPU_KERNEL_IN(avx512, __VA_ARGS__)))
#if !IKEBANA_CPU_HERE
#define IKEBANA_CPU_DISPATCH(...) ::ikebana::cpu::detail::kernel_elsewhere
#elif IKEBANA_CPU_DIRECT
#define IKEBANA_CPU_DISPATCH(...) IKEBANA_CPU_KERNEL_IN(IKEBANA_CPU_FLOOR_SET, __VA_ARGS__)
#elif IKEBANA_CPU_ARM64
#define IKEBANA_CPU_DISPATCH(...)                                            \
  (::ikebana::cpu::detail::pick(&IKEBANA_CPU_KERNEL_IN(scalar, __VA_ARGS__), \
                                &IKEBANA_CPU_KERNEL_IN(neon, __VA_ARGS__)))
#elif IKEBANA_CPU_SSE42 && IKEBANA_CPU_FLOOR == 0
#define IKEBANA_CPU_DISPATCH(...) IKEBANA_CPU_PICK(scalar, sse42, avx2, avx512, __VA_ARGS__)
#else
#define IKEBANA_CPU_DISPATCH(...) \
  IKEBANA_CPU_PICK(IKEBANA_CPU_FLOOR_SET, IKEBANA_CPU_FLOOR_SET, avx2, avx512, __VA_ARGS__)
#endif

// Functions of exp and pools have nothing for SSE4.2, and what is bound by memory nothing for
// AVX-512 either: optimizers, sums and copies take 0.95 to 1.1 of its time on AVX2.
#if IKEBANA_CPU_HERE && IKEBANA_CPU_X86 && IKEBANA_CPU_FLOOR == 0 && !IKEBANA_CPU_ONE
#define IKEBANA_CPU_DISPATCH_AVX(...) IKEBANA_CPU_PICK(scalar, scalar, avx2, avx512, __VA_ARGS__)
#define IKEBANA_CPU_DISPATCH_ONE_WIDTH(...) \
  IKEBANA_CPU_PICK(scalar, scalar, avx2, avx2, __VA_ARGS__)
#else
#define IKEBANA_CPU_DISPATCH_AVX(...) IKEBANA_CPU_DISPATCH(__VA_ARGS__)
#define IKEBANA_CPU_DISPATCH_ONE_WIDTH(...) IKEBANA_CPU_DISPATCH(__VA_ARGS__)
#endif

// A unit with a floor has all of ikebana::cpu under other symbols, so that the linker never takes
// its functions for those of a unit compiled with other flags. Opening ikebana::cpu later extends
// this one; clang does not do so (CWG 2061). The kernels that are built for others must have the
// usual symbols.
#if IKEBANA_CPU_FLOOR != 0 && !IKEBANA_CPU_FOR_OTHERS && !defined(__clang__)
#define IKEBANA_CPU_JOIN_OF(a, b) a##b
#define IKEBANA_CPU_JOIN(a, b) IKEBANA_CPU_JOIN_OF(a, b)
#define IKEBANA_CPU_FROM_FLOOR IKEBANA_CPU_JOIN(from_, IKEBANA_CPU_FLOOR_SET)
namespace ikebana {
inline namespace IKEBANA_CPU_FROM_FLOOR {
namespace cpu {}
}  // namespace IKEBANA_CPU_FROM_FLOOR
}  // namespace ikebana
#endif

// Kernels are written in the order in which they run, with their ranges known: g++'s second
// scheduling makes their inner loops no faster, and ranges of values find nothing in them, for a
// fifth of the time of compilation.
#define IKEBANA_CPU_NO_PASSES "no-schedule-insns2", "no-tree-vrp"

#define IKEBANA_CPU_PRAGMA_OF(...) _Pragma(#__VA_ARGS__)
#define IKEBANA_CPU_PRAGMA(...) IKEBANA_CPU_PRAGMA_OF(__VA_ARGS__)

// Between these two, functions may use `features` beyond the compiler's flags.
#if defined(__clang__)
// A source may have nothing for one of the sets.
#define IKEBANA_CPU_BEGIN_TARGET(features)                                                 \
  _Pragma("clang diagnostic push")                                                         \
      _Pragma("clang diagnostic ignored \"-Wpragma-clang-attribute\"") IKEBANA_CPU_PRAGMA( \
          clang attribute push(__attribute__((target(features))), apply_to = function))
#define IKEBANA_CPU_END_TARGET _Pragma("clang attribute pop") _Pragma("clang diagnostic pop")
#else
#if defined(__OPTIMIZE__)
#define IKEBANA_CPU_FEWER_PASSES IKEBANA_CPU_PRAGMA(GCC optimize(IKEBANA_CPU_NO_PASSES))
#else
#define IKEBANA_CPU_FEWER_PASSES
#endif
#define IKEBANA_CPU_BEGIN_TARGET(features) \
  IKEBANA_CPU_PRAGMA(GCC push_options)     \
  IKEBANA_CPU_PRAGMA(GCC target(features)) \
  IKEBANA_CPU_FEWER_PASSES
#define IKEBANA_CPU_END_TARGET IKEBANA_CPU_PRAGMA(GCC pop_options)
#endif
// Between these two, functions are small rather than fast: what plans and shares out work, as its
// time goes into the kernels; and the scalar set, which hardly a machine runs, where there are
// others.
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && !IKEBANA_CPU_ONE && \
    (IKEBANA_CPU_X86 || IKEBANA_CPU_ARM64)
#define IKEBANA_CPU_BEGIN_SMALL \
  IKEBANA_CPU_PRAGMA(GCC push_options) IKEBANA_CPU_PRAGMA(GCC optimize("Os", IKEBANA_CPU_NO_PASSES))
#define IKEBANA_CPU_END_SMALL IKEBANA_CPU_PRAGMA(GCC pop_options)
#else
#define IKEBANA_CPU_BEGIN_SMALL
#define IKEBANA_CPU_END_SMALL
#endif
