#pragma once

// A program that defines IKEBANA_EXTERN_KERNELS is spared the kernels, even their text: they are
// built once, in cpu/kernels.cc. By default there is nothing to link: a unit builds what it
// uses. IKEBANA_CPU_KERNEL says it of each kernel.
#if defined(IKEBANA_KERNELS_OF)
#define IKEBANA_CPU_HERE 1
#define IKEBANA_CPU_KERNEL(f) template decltype(f<IKEBANA_KERNELS_OF>) f<IKEBANA_KERNELS_OF>;
#elif defined(IKEBANA_ALL_KERNELS)
#define IKEBANA_CPU_HERE 1
#define IKEBANA_CPU_KERNEL(f)           \
  template decltype(f<float>) f<float>; \
  template decltype(f<double>) f<double>;
#elif defined(IKEBANA_EXTERN_KERNELS)
#define IKEBANA_CPU_HERE 0
#define IKEBANA_CPU_KERNEL(f)                  \
  extern template decltype(f<float>) f<float>; \
  extern template decltype(f<double>) f<double>;
#else
#define IKEBANA_CPU_HERE 1
#define IKEBANA_CPU_KERNEL(f)
#endif

// The only place that lists the instruction sets, beside foreach_target.hpp. A macro names a kernel
// in all of their namespaces at once, which nothing else in the language can.
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define IKEBANA_CPU_X86 1
#else
#define IKEBANA_CPU_X86 0
#endif
#if !IKEBANA_CPU_HERE
#define IKEBANA_CPU_DISPATCH(...) ::ikebana::cpu::detail::kernel_elsewhere
#elif IKEBANA_CPU_X86
#define IKEBANA_CPU_DISPATCH(...)                                               \
  (::ikebana::cpu::detail::dispatch_table<                                      \
      &::ikebana::cpu::scalar::__VA_ARGS__, &::ikebana::cpu::avx2::__VA_ARGS__, \
      &::ikebana::cpu::avx512::__VA_ARGS__>::entries[::ikebana::cpu::detail::dispatch_index()])
#else
#define IKEBANA_CPU_DISPATCH(...)          \
  (::ikebana::cpu::detail::dispatch_table< \
      &::ikebana::cpu::scalar::__VA_ARGS__>::entries[::ikebana::cpu::detail::dispatch_index()])
#endif
