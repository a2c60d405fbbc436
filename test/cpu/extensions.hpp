#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include "emulated_tiles.hpp"
#include "ikebana/cpu/low_precision.hpp"
#include "support.hpp"

namespace cpu_test {

/// Like for_each_set, and on AVX-512 once per extension. AMX is emulated on machines without it,
/// AVX512-BF16 only for little work.
template <class F>
void for_each_extension(dim_t products, F f) {
  using namespace ikebana::cpu;
  for_each_set([&] {
    if (active_instruction_set() != instruction_set::avx512) return f();
    const dot_extension before = active_dot_extension();
    for (auto e :
         {dot_extension::none, dot_extension::vnni, dot_extension::bf16, dot_extension::amx}) {
      if (!supports(e) &&
          (e == dot_extension::vnni || (e == dot_extension::bf16 && products > 1'500)))
        continue;
#if defined(__x86_64__) && defined(__linux__)
      const emulated_tiles here;
      detail::active_extension.store(static_cast<int>(e));
#else
      if (!supports(e)) continue;
      set_dot_extension(e);
#endif
      INFO("extension " << std::string(name(e)));
      f();
    }
    detail::active_extension.store(static_cast<int>(before));
  });
}

/// Aligned to a cache line, as tiles prefer their rows.
template <class T>
struct line_allocator {
  using value_type = T;
  T* allocate(std::size_t n) {
    return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* p, std::size_t) { ::operator delete (p, std::align_val_t{64}); }
  bool operator==(const line_allocator&) const = default;
};
template <class T>
using matrix = std::vector<T, line_allocator<T>>;

}  // namespace cpu_test
