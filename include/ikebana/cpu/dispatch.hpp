#pragma once

#include <atomic>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"

/// Which instruction set kernels use. By default every kernel is built for all sets of the
/// architecture, and the widest that the machine supports is picked at run time. SSE4.2 is left
/// out, unless the kernels are built apart (kernels.cc) or by flags that promise it
/// (-msse4.2): machines that have nothing wider then run the scalar set. Where the
/// compiler's flags allow a set everywhere (-march=native, -mavx2 -mfma), the narrower ones are not
/// built; if they allow the widest, calls are direct, and nothing is picked at run time.
/// A program that defines IKEBANA_ONE_INSTRUCTION_SET in all units, those of kernels.cc included,
/// has kernels of one set alone, the widest that the flags allow (without flags, scalar; on
/// AArch64, Neon): it is small, does not read IKEBANA_ISA, and must not run on a lesser machine.
///
/// Units of one program may be compiled with different flags: all of ikebana::cpu then has other
/// symbols in each kind of unit, with an active set of its own, so that none runs kernels that
/// were built for another. (Not with clang: there one of each function remains, which runs wherever
/// the whole program does, but may not heed a set that the other kind of unit has forced.) Programs
/// that define IKEBANA_EXTERN_KERNELS have one kind, whose sets are those of the flags that
/// kernels.cc is compiled with.
namespace ikebana::cpu {

/// Every instruction set there is a kernel for, on any machine; of one machine's, the widest last.
enum class instruction_set { scalar, neon, sse42, avx2, avx512 };

/// The name that IKEBANA_ISA uses.
constexpr const char* name(instruction_set s) {
  constexpr const char* names[] = {"scalar", "neon", "sse42", "avx2", "avx512"};
  return names[static_cast<int>(s)];
}

/// The sets of this architecture, the widest last.
inline constexpr instruction_set instruction_sets[] = {
    instruction_set::scalar,
#if IKEBANA_CPU_ARM64
    instruction_set::neon,
#elif IKEBANA_CPU_X86
    instruction_set::sse42,
    instruction_set::avx2,
    instruction_set::avx512,
#endif
};

namespace detail {

/// The active set, or -1 before the first kernel has run.
inline std::atomic<int> active_index{-1};

/// The sets that kernels are built for, a bit for each, which the kernels' own unit knows.
template <class T>
int built_sets() {
#if IKEBANA_CPU_ONE
  return 1 << IKEBANA_CPU_FLOOR;
#else
  int sets = 0;
  for (const instruction_set s : instruction_sets)
    if (static_cast<int>(s) >= IKEBANA_CPU_FLOOR &&
        (s != instruction_set::sse42 || IKEBANA_CPU_SSE42))
      sets |= 1 << static_cast<int>(s);
  return sets;
#endif
}
IKEBANA_CPU_KERNEL(built_sets)

inline bool is_built(instruction_set s) {
  return (built_sets<float>() >> static_cast<int>(s) & 1) != 0;
}

}  // namespace detail

/// Whether this machine (processor and operating system) can run `s`, and this build holds it.
inline bool supports(instruction_set s) {
  if (!detail::is_built(s)) return false;
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
    case instruction_set::sse42:
      return __builtin_cpu_supports("sse4.2");
    default:
      break;
  }
#endif
  return true;
}

/// Makes every later kernel call, on all threads, use `s`. For tests and benchmarks.
/// Throws `ikebana::error` if this machine or this build does not support it.
inline void set_instruction_set(instruction_set s) {
  if (!supports(s))
    throw_error(error(std::string(detail::is_built(s) ? "this machine does not support"
                                                      : "this build has no kernels for") +
                      " the instruction set " + name(s)));
  detail::active_index.store(static_cast<int>(s), std::memory_order_relaxed);
}

namespace detail {

[[noreturn, gnu::cold]] inline void refuse_set(const char* wanted, bool known) {
  std::string text = "IKEBANA_ISA is \"";
  text.append(wanted).append("\"");
  if (known) throw_error(error(text.append(", which this machine does not support")));
  const char* before = "; in this build it can be ";
  for (const instruction_set& s : instruction_sets) {
    if (!is_built(s)) continue;
    text.append(before).append(name(s));
    // The widest is always built.
    before = &s + 2 == std::end(instruction_sets) ? " or " : ", ";
  }
  throw_error(error(text));
}

/// The set that IKEBANA_ISA asks for, or -1.
inline int wanted_set() {
  const char* const wanted = std::getenv("IKEBANA_ISA");
  if (wanted == nullptr || *wanted == '\0') return -1;
  const std::string_view asked = wanted;
  for (const instruction_set s : instruction_sets)
    // Names of extensions of the set (low_precision.hpp) begin with its own, but for AMX.
    if (is_built(s) && (asked == name(s) ||
                        (s == instruction_set::avx512 &&
                         (asked == "avx512_vnni" || asked == "avx512_bf16" || asked == "amx")))) {
      if (!supports(s)) refuse_set(wanted, true);
      return static_cast<int>(s);
    }
  refuse_set(wanted, false);
}

// Threads that come here at once find the same answer.
[[gnu::noinline, gnu::cold]] inline int detect_set() {
  int found = wanted_set();
  if (found < 0) {
    // The narrowest is what the compiler itself takes for granted.
    for (const instruction_set s : instruction_sets)
      if (supports(s) || (found < 0 && is_built(s))) found = static_cast<int>(s);
  }
  active_index.store(found, std::memory_order_relaxed);
  return found;
}

inline int dispatch_index() {
#if IKEBANA_CPU_ONE
  return IKEBANA_CPU_FLOOR;
#endif
  const int i = active_index.load(std::memory_order_relaxed);
  return i >= 0 ? i : detect_set();
}

/// Of one kernel as built for each set of the architecture, the one to call. What is not built is
/// never asked for: a neighbour stands in its place.
#if IKEBANA_CPU_X86
template <class Kernel>
[[gnu::always_inline]] inline Kernel* pick(Kernel* scalar, Kernel* sse42, Kernel* avx2,
                                           Kernel* avx512) {
  const auto active = static_cast<instruction_set>(dispatch_index());
  return active == instruction_set::avx512  ? avx512
         : active == instruction_set::avx2  ? avx2
         : active == instruction_set::sse42 ? sse42
                                            : scalar;
}
#else
template <class Kernel>
[[gnu::always_inline]] inline Kernel* pick(Kernel* scalar, Kernel* neon) {
  return static_cast<instruction_set>(dispatch_index()) == instruction_set::neon ? neon : scalar;
}
#endif

/// Stands for what a kernel gives where its text is not read: such a call is never built.
struct given_elsewhere {
  template <class T>
  operator T() const;
};
/// An object, since clang deduces no type from the name of a template.
struct kernel_elsewhere_type {
  template <class... Arguments>
  given_elsewhere operator()(const Arguments&...) const;
};
inline constexpr kernel_elsewhere_type kernel_elsewhere{};

#if IKEBANA_CPU_DIRECT && !IKEBANA_CPU_ONE
// No kernel call looks at IKEBANA_ISA here, so the program refuses at its start what it cannot do.
inline const int checked_at_start = wanted_set();
#endif

}  // namespace detail

/// The instruction set that kernels use: the widest supported, or what the environment variable
/// IKEBANA_ISA (a name) says. Found once. Throws `ikebana::error` if IKEBANA_ISA is unknown, not
/// built or unsupported.
inline instruction_set active_instruction_set() {
  return static_cast<instruction_set>(detail::dispatch_index());
}

}  // namespace ikebana::cpu
