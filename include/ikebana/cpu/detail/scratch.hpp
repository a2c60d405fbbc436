#pragma once

#include <cstddef>
#include <new>

#include "ikebana/core/aligned_buffer.hpp"

namespace ikebana::cpu::detail {

/// What every thread keeps for packing: a block of B that fits the second-level cache, and a panel
/// of A.
inline constexpr std::size_t packed_b_bytes = std::size_t{512} * 1024;
inline constexpr std::size_t packed_a_bytes = std::size_t{64} * 1024;

/// The calling thread's packing buffer, aligned to 64 bytes. Allocated at the thread's first use.
inline std::byte* thread_scratch() {
  struct owner {
    std::byte* data = static_cast<std::byte*>(
        ::operator new (packed_a_bytes + packed_b_bytes, std::align_val_t{storage_alignment}));
    owner() = default;
    owner(const owner&) = delete;
    owner& operator=(const owner&) = delete;
    ~owner() { ::operator delete (data, std::align_val_t{storage_alignment}); }
  };
  thread_local owner mine;
  return mine.data;
}

}  // namespace ikebana::cpu::detail
