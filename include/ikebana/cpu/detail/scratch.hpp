#pragma once

#include <cstddef>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/cpu/detail/caches.hpp"
#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana::cpu::detail {

/// What every thread keeps for packing at least: a block of B that fits the second-level cache, and
/// a block of A.
inline constexpr std::size_t packed_b_bytes = std::size_t{512} * 1024;
inline constexpr std::size_t packed_a_bytes = std::size_t{64} * 1024;

/// The bytes for the two blocks: half and a quarter of the second-level cache.
struct scratch_sizes {
  std::size_t b, a;
};
inline scratch_sizes scratch_bytes() {
  const auto second = static_cast<std::size_t>(caches().second);
  return {second / 2 > packed_b_bytes ? second / 2 : packed_b_bytes,
          second / 4 > packed_a_bytes ? second / 4 : packed_a_bytes};
}

/// What every thread keeps beside them for lists of places. These lie where no kernel reads lanes
/// that it does not use: integers as reals are subnormal, and those take a processor a hundred
/// times as long.
inline constexpr std::size_t list_bytes = std::size_t{256} * 1024;

/// Large pages, where the system has them and the buffer is large enough.
inline std::byte* new_scratch(std::size_t bytes, std::size_t page) {
  void* const data = ::operator new (bytes, std::align_val_t{page});
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  // Whatever it answers.
  static_cast<void>(::madvise(data, bytes, MADV_HUGEPAGE));
#endif
  return static_cast<std::byte*>(data);
}

/// The bytes of a packing buffer: as many as scratch_bytes says, and a page.
inline std::size_t packing_bytes() { return scratch_bytes().b + scratch_bytes().a + 4096; }

/// The bytes of what a thread keeps.
inline std::size_t thread_memory_bytes() {
  constexpr std::size_t page = std::size_t{2} * 1024 * 1024;
  return (2 * packing_bytes() + list_bytes + page - 1) / page * page;
}

/// What the calling thread keeps: a packing buffer, its lists, and a packing buffer of doubles.
/// Allocated at the thread's first use.
[[gnu::noinline]] inline std::byte* thread_memory() {
  constexpr std::size_t page = std::size_t{2} * 1024 * 1024;
  struct owner {
    std::byte* data = new_scratch(thread_memory_bytes(), page);
    owner() = default;
    owner(const owner&) = delete;
    owner& operator=(const owner&) = delete;
    ~owner() { ::operator delete (data, std::align_val_t{page}); }
  };
  thread_local owner mine;
  return mine.data;
}

/// The calling thread's packing buffer, aligned to 64 bytes: packing_bytes(). One for each size of
/// elements, lest what one type left is subnormal to the other: a float beside a zero is, as a
/// double, and kernels read lanes that they do not use.
template <class T>
T* thread_scratch() {
  std::byte* const data = thread_memory();
  return reinterpret_cast<T*>(sizeof(T) <= 4 ? data : data + packing_bytes() + list_bytes);
}
/// The calling thread's lists: list_bytes.
[[gnu::noinline]] inline std::byte* thread_lists() { return thread_memory() + packing_bytes(); }

/// Hands out parts of a piece of memory, each from a cache line on, as a
/// std::pmr::monotonic_buffer_resource does, but never allocates: whether all of them fitted is
/// known in the end.
class monotonic_scratch {
 public:
  /// The calling thread's packing buffer for T, as far as every thread has one.
  template <class T>
  static monotonic_scratch of() {
    return {reinterpret_cast<std::byte*>(thread_scratch<T>()), packed_b_bytes + packed_a_bytes};
  }
  /// Its lists.
  static monotonic_scratch of_lists() { return {thread_lists(), list_bytes}; }

  /// Null and 0: to learn how many bytes parts take.
  monotonic_scratch(std::byte* data, std::size_t size) : data_{data}, size_{size} {}

  /// Room for n elements; null where they do not fit.
  template <class T>
  T* allocate(dim_t n) {
    const std::size_t begin = used_;
    used_ += (static_cast<std::size_t>(n) * sizeof(T) + 63) / 64 * 64;
    return fits() ? reinterpret_cast<T*>(data_ + begin) : nullptr;
  }
  template <class T>
  void allocate(T*& part, dim_t n) {
    part = allocate<T>(n);
  }

  std::size_t used() const { return used_; }
  bool fits() const { return used_ <= size_; }

 private:
  std::byte* data_;
  std::size_t size_, used_ = 0;
};

}  // namespace ikebana::cpu::detail
