#pragma once

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

inline cache_sizes find_caches() {
  cache_sizes found;
#if defined(_SC_LEVEL1_DCACHE_SIZE) && defined(_SC_LEVEL2_CACHE_SIZE)
  // Not every system knows; then both are 0.
  const dim_t first = ::sysconf(_SC_LEVEL1_DCACHE_SIZE), second = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (first >= 8 * 1024) found.first = first;
  if (second >= 4 * found.first) found.second = second;
#endif
  return found;
}

/// Found once. The blocks of a product follow from them, but not its bits.
inline const cache_sizes& caches() {
  static const cache_sizes found = find_caches();
  return found;
}

}  // namespace ikebana::cpu::detail
