#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/detail/tile_kernel.hpp"

namespace ikebana::cpu::detail {

// Products of small numbers multiply words: 32 bits that hold two numbers of 16 bits or four of 8,
// neighbours along the summed dimension. B is packed into panels of two registers of columns, word
// by word; A into panels of a few rows, a register's words of each row in turn. Tiles have a kernel
// of their own: tile_kernel.hpp.

/// Words along the summed dimension that are multiplied at a time, so that a panel of A stays in
/// the first-level cache; whole tiles.
inline constexpr dim_t word_depth = 256;
/// Columns of B that stay packed in the second-level cache.
inline constexpr dim_t word_columns = 512;
inline constexpr dim_t most_word_rows = 32;
/// Numbers of a result that is converted as a whole.
inline constexpr dim_t converted_block = 64 * 1024;

/// The innermost loop of a product, as an instruction set's extension has it.
template <class R>
struct word_kernel {
  /// The rows of the panel to use where `left` are left.
  dim_t (*panel_rows)(dim_t left);
  /// The product of panels of `rows` rows and `columns` columns, added to `out` or stored there.
  void (*multiply)(dim_t rows, dim_t columns, dim_t words, const std::int32_t* a,
                   const std::int32_t* b, R* out, dim_t out_step, bool adds);
};

/// What an extension multiplies by, at most one of them; else null.
template <class R>
struct word_kernels {
  const word_kernel<R>* words = nullptr;
  const tile_kernel<R>* tiles = nullptr;
};

static_assert(most_word_rows * word_depth <= tile_pair * tile_depth);
static_assert(word_columns * word_depth <= tile_words);

/// The calling thread's buffers for such products. Allocated at the thread's first use.
struct word_scratch {
  static constexpr std::size_t b_bytes = std::size_t{tile_words} * 4;
  static constexpr std::size_t a_bytes = std::size_t{tile_pair} * tile_depth * 4 + 64;
  std::int32_t* b;
  std::int32_t* a;
  float* converted;
};

inline word_scratch thread_word_scratch() {
  constexpr std::size_t bytes =
      word_scratch::b_bytes + word_scratch::a_bytes + converted_block * sizeof(float);
  struct owner {
    std::byte* data =
        static_cast<std::byte*>(::operator new (bytes, std::align_val_t{storage_alignment}));
    owner() = default;
    owner(const owner&) = delete;
    owner& operator=(const owner&) = delete;
    ~owner() { ::operator delete (data, std::align_val_t{storage_alignment}); }
  };
  thread_local owner mine;
  std::byte* const a = mine.data + word_scratch::b_bytes;
  return {reinterpret_cast<std::int32_t*>(mine.data), reinterpret_cast<std::int32_t*>(a),
          reinterpret_cast<float*>(a + word_scratch::a_bytes)};
}

/// 64 bytes of ones, then as many of zeros.
struct byte_masks {
  alignas(64) unsigned char bytes[128];
  constexpr byte_masks() : bytes{} {
    for (int i = 0; i < 64; ++i) bytes[i] = 0xFF;
  }
};
inline constexpr byte_masks tail_masks;

}  // namespace ikebana::cpu::detail
