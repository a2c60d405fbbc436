#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/replicate/buckets/reduction.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/request.hpp"
#include "ikebana/replicate/threads/thread_world.hpp"

/// One rank's work for a collective once all have announced it: a function of the table's row with
/// the announcements of all ranks.
namespace ikebana::detail {

using share = void (*)(const announcement* row, int rank, int size);

template <class T>
slice aligned_slice_of(const void* data, dim_t n, int parts, int part) {
  constexpr dim_t step = round_up_to_alignment<T>(1);
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto lead = static_cast<dim_t>(address % storage_alignment / sizeof(T));
  return slice_of(n, parts, part, step, lead);
}

template <class T>
void all_reduce_share(const announcement* row, int rank, int size) {
  const request& mine = row[rank].what;
  // All ranks slice by the memory of rank 0, so that the slices agree.
  const slice s = aligned_slice_of<T>(row[0].what.receive, mine.length, size, rank);
  if (s.size() <= 0) return;
  std::array<T*, thread_world::max_size> ranks;
  for (int r = 0; r < size; ++r)
    ranks[static_cast<std::size_t>(r)] = static_cast<T*>(row[r].what.receive);
  reduce_in_place<T>(mine.op, s.size(), ranks.data(), size, s.begin);
}

/// Request: `send` has length * size elements, `receive` length.
template <class T>
void reduce_scatter_share(const announcement* row, int rank, int size) {
  const request& mine = row[rank].what;
  std::array<const T*, thread_world::max_size> ranks;
  for (int r = 0; r < size; ++r)
    ranks[static_cast<std::size_t>(r)] = static_cast<const T*>(row[r].what.send);
  T* out = static_cast<T*>(mine.receive);
  reduce_slice<T>(mine.op, mine.length, ranks.data(), size, mine.length * rank, &out, 1, 0);
}

inline void broadcast_share(const announcement* row, int rank, int) {
  const request& mine = row[rank].what;
  if (rank == mine.root || mine.length == 0) return;
  std::memcpy(mine.receive, row[mine.root].what.receive, mine.bytes());
}

/// Request: `send` has length elements, `receive` length * size. `send` may already be at its place
/// in `receive`.
inline void all_gather_share(const announcement* row, int rank, int size) {
  const request& mine = row[rank].what;
  const std::size_t bytes = mine.bytes();
  if (bytes == 0) return;
  for (int r = 0; r < size; ++r) {
    std::byte* to = static_cast<std::byte*>(mine.receive) + bytes * static_cast<std::size_t>(r);
    if (to != row[r].what.send) std::memcpy(to, row[r].what.send, bytes);
  }
}

inline void barrier_share(const announcement*, int, int) {}

}  // namespace ikebana::detail
