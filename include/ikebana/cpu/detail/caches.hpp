#pragma once

#include <atomic>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana::cpu::detail {

/// The bytes of a core's data caches of the first and second level.
struct cache_sizes {
  dim_t first = dim_t{32} * 1024, second = dim_t{512} * 1024;
};

/// What was found; 0 before.
inline std::atomic<dim_t> first_level_bytes{0}, second_level_bytes{0};

// Threads that come here at once find the same.
[[gnu::noinline, gnu::cold]] inline cache_sizes find_caches() {
  cache_sizes found;
#if defined(_SC_LEVEL1_DCACHE_SIZE) && defined(_SC_LEVEL2_CACHE_SIZE)
  // Not every system knows; then both are 0.
  const dim_t first = ::sysconf(_SC_LEVEL1_DCACHE_SIZE), second = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (first >= 8 * 1024) found.first = first;
  if (second >= 4 * found.first) found.second = second;
#endif
  second_level_bytes.store(found.second, std::memory_order_relaxed);
  first_level_bytes.store(found.first, std::memory_order_release);
  return found;
}

/// Found once. The blocks of a product follow from them, but not its bits.
inline cache_sizes caches() {
  const dim_t first = first_level_bytes.load(std::memory_order_acquire);
  if (first == 0) [[unlikely]]
    return find_caches();
  return {first, second_level_bytes.load(std::memory_order_relaxed)};
}

}  // namespace ikebana::cpu::detail
