#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

// Counts every call of a global operator new, on all threads, in the only source of a program that
// includes this.

inline std::atomic<long> allocation_count{0};
inline std::atomic<std::size_t> allocated_bytes{0};
/// Those of the calling thread only.
inline thread_local long allocation_count_here = 0;

namespace counted {

inline void* take(std::size_t n, std::size_t alignment) {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  ++allocation_count_here;
  allocated_bytes.fetch_add(n, std::memory_order_relaxed);
  if (n == 0) n = 1;
  // aligned_alloc requires a multiple of the alignment.
  void* p = alignment <= alignof(std::max_align_t)
                ? std::malloc(n)
                : std::aligned_alloc(alignment, (n + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

inline void* take_or_null(std::size_t n, std::size_t alignment) noexcept {
  try {
    return take(n, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace counted

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

void* operator new(std::size_t n) { return counted::take(n, 0); }
void* operator new[](std::size_t n) { return counted::take(n, 0); }
void* operator new(std::size_t n, std::align_val_t a) {
  return counted::take(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a) {
  return counted::take(n, static_cast<std::size_t>(a));
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return counted::take_or_null(n, 0);
}
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return counted::take_or_null(n, 0);
}
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return counted::take_or_null(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return counted::take_or_null(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
