#pragma once

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana::cpu {

namespace detail {

/// 0, 1, or -1 before IKEBANA_VERBOSE was read.
inline std::atomic<int> verbosity{-1};

[[gnu::noinline, gnu::cold]] inline bool read_verbosity() {
  const char* const wanted = std::getenv("IKEBANA_VERBOSE");
  const bool on = wanted != nullptr && std::string_view(wanted) == "1";
  verbosity.store(on ? 1 : 0, std::memory_order_relaxed);
  return on;
}

}  // namespace detail

/// Whether a line is printed to stderr for each plan that a kernel makes: IKEBANA_VERBOSE=1, which
/// is read once.
inline bool is_verbose() {
  const int on = detail::verbosity.load(std::memory_order_relaxed);
  return on >= 0 ? on != 0 : detail::read_verbosity();
}

/// Overrides IKEBANA_VERBOSE, for all threads.
inline void set_verbose(bool on) { detail::verbosity.store(on ? 1 : 0, std::memory_order_relaxed); }

namespace detail {

/// Prints "ikebana_verbose,<family>,<problem>,<algorithm>,<cost>", one line at a time. The problem
/// is given as to std::printf; a cost has its unit ("1024 bytes") or is empty. Call it only if
/// is_verbose().
[[gnu::noinline, gnu::cold, gnu::format(printf, 4, 5)]] inline void print_plan(
    const char* family, const char* algorithm, const char* cost, const char* problem, ...) {
  char text[256];
  std::va_list arguments;
  va_start(arguments, problem);
  std::vsnprintf(text, sizeof text, problem, arguments);
  va_end(arguments);
  std::fprintf(stderr, "ikebana_verbose,%s,%s,%s,%s\n", family, text, algorithm, cost);
}

}  // namespace detail
}  // namespace ikebana::cpu
