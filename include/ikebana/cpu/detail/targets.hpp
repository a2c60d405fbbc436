#pragma once

// The only place that lists the instruction sets, beside foreach_target.hpp. A macro names a kernel
// in all of their namespaces at once, which nothing else in the language can.
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define IKEBANA_CPU_X86 1
#define IKEBANA_CPU_DISPATCH(...)                                               \
  (::ikebana::cpu::detail::dispatch_table<                                      \
      &::ikebana::cpu::scalar::__VA_ARGS__, &::ikebana::cpu::avx2::__VA_ARGS__, \
      &::ikebana::cpu::avx512::__VA_ARGS__>::entries[::ikebana::cpu::detail::dispatch_index()])
#else
#define IKEBANA_CPU_X86 0
#define IKEBANA_CPU_DISPATCH(...)          \
  (::ikebana::cpu::detail::dispatch_table< \
      &::ikebana::cpu::scalar::__VA_ARGS__>::entries[::ikebana::cpu::detail::dispatch_index()])
#endif
