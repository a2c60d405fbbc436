#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana::cpu::detail {

/// What a thread keeps memory for: Winograd's weights; what lies beside the packing buffer, which a
/// product needs for itself, or is too large for it; lists that are too large for the thread's.
enum class conv_use : unsigned char { weights, beside, lists };

inline std::byte* conv_bytes(conv_use use, std::size_t n) {
  struct owner {
    std::byte* data = nullptr;
    std::size_t size = 0;
    owner() = default;
    owner(const owner&) = delete;
    owner& operator=(const owner&) = delete;
    ~owner() { ::operator delete (data, std::align_val_t{storage_alignment}); }
  };
  thread_local owner all[static_cast<std::size_t>(conv_use::lists) + 1];
  owner& mine = all[static_cast<std::size_t>(use)];
  if (mine.size < n) {
    ::operator delete (mine.data, std::align_val_t{storage_alignment});
    mine.data = nullptr;
    mine.size = 0;
    mine.data = static_cast<std::byte*>(::operator new (n, std::align_val_t{storage_alignment}));
    mine.size = n;
  }
  return mine.data;
}

/// At least n elements of the calling thread's, until the next call for the same use.
template <class T>
T* conv_memory(conv_use use, dim_t n) {
  return reinterpret_cast<T*>(conv_bytes(use, static_cast<std::size_t>(n) * sizeof(T)));
}

/// The same, of those that call no product: the thread's packing buffer where they fit it, which
/// every thread has before it works.
template <class T>
T* conv_room(dim_t n) {
  return n * dim_t{sizeof(T)} <= static_cast<dim_t>(packed_b_bytes + packed_a_bytes)
             ? thread_scratch<T>()
             : conv_memory<T>(conv_use::beside, n);
}
/// The same for lists.
inline std::int32_t* conv_list(dim_t n) {
  return n * dim_t{sizeof(std::int32_t)} <= static_cast<dim_t>(list_bytes)
             ? reinterpret_cast<std::int32_t*>(thread_lists())
             : conv_memory<std::int32_t>(conv_use::lists, n);
}

}  // namespace ikebana::cpu::detail
