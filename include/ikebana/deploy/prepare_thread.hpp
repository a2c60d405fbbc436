#pragma once

#include <cstddef>
#include <cstring>

#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/dispatch.hpp"

namespace ikebana {

/// Allocates and touches the scratch memory of kernels for the calling thread, and detects the
/// instruction set and the caches, so that no later call of a network on this thread allocates or
/// waits for a page. Idempotent. Takes up to a few milliseconds.
inline void prepare_thread() {
  static_cast<void>(cpu::active_instruction_set());
  std::byte* const scratch = cpu::detail::thread_memory();
  for (std::size_t i = 0; i < cpu::detail::thread_memory_bytes(); i += 4096)
    scratch[i] = std::byte{0};
}

}  // namespace ikebana
