#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana::cpu {

/// The instruction sets that every kernel is built for, the widest last.
enum class instruction_set { scalar, avx2, avx512 };

namespace detail {

inline constexpr const char* set_names[] = {"scalar", "avx2", "avx512"};
inline constexpr int set_count = 3;

/// The index of the active set, or -1 before the first kernel has run.
inline std::atomic<int> active_index{-1};

}  // namespace detail

/// The name that IKEBANA_ISA uses.
constexpr const char* name(instruction_set s) { return detail::set_names[static_cast<int>(s)]; }

/// Whether this machine (processor and operating system) can run `s`, and this build holds it.
inline bool supports(instruction_set s) {
#if IKEBANA_CPU_X86
  // The compiler's run-time support reads XCR0 too, so a set the system does not save counts as
  // absent.
  __builtin_cpu_init();
  switch (s) {
    case instruction_set::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("fma");
    case instruction_set::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    default:
      return true;
  }
#else
  return s == instruction_set::scalar;
#endif
}

/// Makes every later kernel call, on all threads, use `s`. For tests and benchmarks.
/// Throws `ikebana::error` if this machine does not support it.
inline void set_instruction_set(instruction_set s) {
  if (!supports(s))
    throw error(std::string("this machine does not support the instruction set ") + name(s));
  detail::active_index.store(static_cast<int>(s), std::memory_order_relaxed);
}

namespace detail {

// Threads that come here at once find the same answer.
inline int detect_set() {
  int found = set_count - 1;
  while (!supports(static_cast<instruction_set>(found))) --found;
  if (const char* wanted = std::getenv("IKEBANA_ISA"); wanted != nullptr && *wanted != '\0') {
    found = 0;
    while (found < set_count && std::string_view{wanted} != set_names[found]) ++found;
    if (found == set_count)
      throw error(std::string("IKEBANA_ISA is \"") + wanted +
                  "\"; it can be scalar, avx2 or avx512");
    if (!supports(static_cast<instruction_set>(found)))
      throw error(std::string("IKEBANA_ISA is \"") + wanted +
                  "\", which this machine does not support");
  }
  active_index.store(found, std::memory_order_relaxed);
  return found;
}

inline std::size_t dispatch_index() {
  const int i = active_index.load(std::memory_order_relaxed);
  return static_cast<std::size_t>(i >= 0 ? i : detect_set());
}

/// One kernel as built for each set, in the order of `instruction_set`.
template <auto... Kernels>
struct dispatch_table {
  static constexpr decltype((Kernels, ...)) entries[] = {Kernels...};
};

/// Stands for what a kernel gives where its text is not read: such a call is never built.
struct given_elsewhere {
  template <class T>
  operator T() const;
};
template <class... Arguments>
given_elsewhere kernel_elsewhere(const Arguments&...);

}  // namespace detail

/// The instruction set that kernels use: the widest supported, or what the environment variable
/// IKEBANA_ISA (scalar, avx2, avx512) says. Found once. Throws `ikebana::error` if IKEBANA_ISA is
/// unknown or unsupported.
inline instruction_set active_instruction_set() {
  return static_cast<instruction_set>(detail::dispatch_index());
}

}  // namespace ikebana::cpu
