#pragma once

#include <exception>

#include "ikebana/core/language.hpp"

#if !defined(__cpp_exceptions)
#include <cstdio>
#include <cstdlib>
#endif

namespace ikebana {

/// Throws e. In a program without exceptions (-fno-exceptions), writes its text to stderr and ends
/// the process by std::abort.
template <class E>
[[noreturn, gnu::cold, gnu::noinline]] void throw_error(const E& e) {
#if defined(__cpp_exceptions)
  throw e;
#else
  std::fprintf(stderr, "%s\n", e.what());
  std::abort();
#endif
}

namespace detail {

/// Calls f; what it throws, or null.
template <class F>
std::exception_ptr failure_of(const F& f) noexcept {
#if defined(__cpp_exceptions)
  try {
    f();
  } catch (...) {
    return std::current_exception();
  }
#else
  f();
#endif
  return nullptr;
}

}  // namespace detail

}  // namespace ikebana
