#pragma once

#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/dispatch.hpp"

// As IKEBANA_CPU_KERNEL, of kernels that are built in low_precision_kernels.cc.
#if defined(IKEBANA_LOW_PRECISION_KERNELS)
#define IKEBANA_CPU_LOW_PRECISION_KERNEL(f, ...) template decltype(f<__VA_ARGS__>) f<__VA_ARGS__>;
#elif !IKEBANA_CPU_HERE
#define IKEBANA_CPU_LOW_PRECISION_KERNEL(f, ...) \
  extern template decltype(f<__VA_ARGS__>) f<__VA_ARGS__>;
#else
#define IKEBANA_CPU_LOW_PRECISION_KERNEL(f, ...)
#endif

#if IKEBANA_CPU_X86
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace ikebana::cpu {

/// What products of numbers of 8 and 16 bits may use beyond AVX-512; each includes those before it
/// as far as the machine has them: dot products of bytes (AVX512-VNNI), of bfloat16 (AVX512-BF16),
/// and of tiles of both (AMX).
enum class dot_extension { none, vnni, bf16, amx };

/// The name that IKEBANA_ISA uses.
constexpr const char* name(dot_extension e) {
  constexpr const char* names[] = {"avx512", "avx512_vnni", "avx512_bf16", "amx"};
  return names[static_cast<int>(e)];
}

namespace detail {

#if IKEBANA_CPU_X86
/// Whether this process may use tiles: Linux saves them for those that ask only. Asks once.
inline bool tiles_permitted() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr long request_permission = 0x1023, tile_data = 18;
  static const bool granted = syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  return granted;
#else
  return false;
#endif
}
#endif

inline bool machine_has_extension(dot_extension e) {
  if (e == dot_extension::none) return true;
#if IKEBANA_CPU_X86
  if (!supports(instruction_set::avx512)) return false;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if (e == dot_extension::vnni) return (c >> 11 & 1) != 0;
  constexpr unsigned tiles = (1u << 22) | (1u << 24) | (1u << 25);
  const bool has_tiles = (d & tiles) == tiles;
  // Tiles are filled with what AVX512-BF16 rounds.
  if (a < 1 || __get_cpuid_count(7, 1, &a, &b, &c, &d) == 0 || (a >> 5 & 1) == 0) return false;
  return e == dot_extension::bf16 || (has_tiles && tiles_permitted());
#else
  return false;
#endif
}

/// The extension in use, or -1 before the first product.
inline std::atomic<int> active_extension{-1};

// Intel's dot products of bfloat16 take twice the time of float's on the same numbers, AMD's half.
inline bool prefers(dot_extension e) {
#if IKEBANA_CPU_X86
  return e != dot_extension::bf16 || __builtin_cpu_is("amd");
#else
  return e == dot_extension::none;
#endif
}

inline dot_extension detect_extension() {
  const char* const text = std::getenv("IKEBANA_ISA");
  const std::string_view wanted = text != nullptr ? text : "";
  int found = static_cast<int>(dot_extension::amx);
  while (found >= 0 && wanted != name(static_cast<dot_extension>(found))) --found;
  if (found >= 0) {
    if (!machine_has_extension(static_cast<dot_extension>(found)))
      throw_error(error("IKEBANA_ISA is \"" + std::string(wanted) +
                        "\", which this machine does not support"));
  } else {
    found = static_cast<int>(dot_extension::amx);
    while (found > 0 && !(machine_has_extension(static_cast<dot_extension>(found)) &&
                          prefers(static_cast<dot_extension>(found))))
      --found;
  }
  active_extension.store(found, std::memory_order_relaxed);
  return static_cast<dot_extension>(found);
}

}  // namespace detail

/// Whether this machine (processor and operating system) and build can run `e`.
inline bool supports(dot_extension e) { return detail::machine_has_extension(e); }

/// Makes every later product, on all threads, use `e` where the active instruction set is AVX-512.
/// For tests and benchmarks. Throws `ikebana::error` if this machine does not support it.
inline void set_dot_extension(dot_extension e) {
  if (!supports(e))
    throw_error(error(std::string("this machine does not support the instructions ") + name(e)));
  detail::active_extension.store(static_cast<int>(e), std::memory_order_relaxed);
}

/// The extension that products use: none unless the active instruction set is AVX-512; else what
/// IKEBANA_ISA names (avx512 is none), by default the last that the machine has and is fast at.
/// Asking for AMX asks the system, once in the process, for the permission to use tiles.
inline dot_extension active_dot_extension() {
  if (active_instruction_set() != instruction_set::avx512) return dot_extension::none;
  const int e = detail::active_extension.load(std::memory_order_relaxed);
  return e >= 0 ? static_cast<dot_extension>(e) : detail::detect_extension();
}

}  // namespace ikebana::cpu
