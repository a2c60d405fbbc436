#pragma once

#include <cstddef>
#include <new>

#include "ikebana/core/aligned_buffer.hpp"

namespace ikebana::cpu::detail {

/// At least n floats of the calling thread's, until the next call for the same
/// `use`: 0 for Winograd's weights, 1 for what lies beside the packing buffer,
/// which a product needs for itself, or is too large for it, 2 for what is given to those products.
inline float* conv_memory(int use, std::size_t n) {
  struct owner {
    float* data = nullptr;
    std::size_t size = 0;
    owner() = default;
    owner(const owner&) = delete;
    owner& operator=(const owner&) = delete;
    ~owner() { ::operator delete (data, std::align_val_t{storage_alignment}); }
  };
  thread_local owner all[3];
  owner& mine = all[use];
  if (mine.size < n) {
    ::operator delete (mine.data, std::align_val_t{storage_alignment});
    mine.data = nullptr;
    mine.size = 0;
    mine.data = static_cast<float*>(
        ::operator new (n * sizeof(float), std::align_val_t{storage_alignment}));
    mine.size = n;
  }
  return mine.data;
}

}  // namespace ikebana::cpu::detail
