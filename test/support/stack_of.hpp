#pragma once

#include <doctest/doctest.h>
#include <pthread.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

/// The number of bytes of a thread's stack that f uses: those up to the first that f did not
/// overwrite.
template <class F>
std::size_t stack_of(F f) {
  constexpr std::size_t size = std::size_t{1} << 20;
  constexpr char untouched = 0x5a;
  char* const memory = static_cast<char*>(std::aligned_alloc(4096, size));
  std::memset(memory, untouched, size);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstack(&attributes, memory, size) == 0);
  pthread_t thread;
  const auto run = [](void* p) -> void* {
    (*static_cast<F*>(p))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, &f) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  std::size_t free = 0;
  while (free < size && memory[free] == untouched) ++free;
  std::free(memory);
  return size - free;
}

/// Sanitizers enlarge stack frames.
inline constexpr bool is_plain =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    false;
#elif defined(__has_feature)
    !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer) &&
    !__has_feature(memory_sanitizer);
#else
    true;
#endif
