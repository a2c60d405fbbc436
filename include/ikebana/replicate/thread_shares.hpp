#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/collective.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/thread_world.hpp"

/// What one rank does of a collective once all have announced it: a function of the row of the
/// table that holds the announcements of all ranks.
namespace ikebana::detail {

using share = void (*)(const announcement* row, int rank, int size);

struct slice {
  dim_t begin = 0, end = 0;
  constexpr dim_t size() const { return end - begin; }
};

/// Slice `part` of [0, n) cut in `parts` at multiples of `step`, where the memory begins `lead`
/// elements after such a multiple. The slices are as equal as that allows and cover [0, n) in
/// order.
constexpr slice slice_of(dim_t n, int parts, int part, dim_t step, dim_t lead) {
  const dim_t lines = (n + lead + step - 1) / step;
  const dim_t per_part = (lines + parts - 1) / parts * step;
  const auto cut = [&](int p) {
    const dim_t at = per_part * p - lead;
    return at < 0 ? 0 : at > n ? n : at;
  };
  return {cut(part), cut(part + 1)};
}

template <class T>
slice aligned_slice_of(const void* data, dim_t n, int parts, int part) {
  constexpr dim_t step = round_up_to_alignment<T>(1);
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto lead = static_cast<dim_t>(address % storage_alignment / sizeof(T));
  return slice_of(n, parts, part, step, lead);
}

/// out[r][at + i] = scale * (in[0][from + i] + in[1][from + i] + ...) and likewise for the other
/// operations, in the order of the ranks; `outs` pointers of out.
template <class T, class Combine, class Finish>
void reduce_slice(dim_t n, const T* const* in, int size, dim_t from, T* const* out, int outs,
                  dim_t at, Combine combine, Finish finish) {
  constexpr dim_t block = 256;
  alignas(storage_alignment) T sum[block];
  for (dim_t first = 0; first < n; first += block) {
    const dim_t m = n - first < block ? n - first : block;
    std::memcpy(sum, in[0] + from + first, static_cast<std::size_t>(m) * sizeof(T));
    for (int r = 1; r < size; ++r) {
      const T* x = in[r] + from + first;
      for (dim_t i = 0; i < m; ++i) sum[i] = combine(sum[i], x[i]);
    }
    for (dim_t i = 0; i < m; ++i) sum[i] = finish(sum[i]);
    for (int r = 0; r < outs; ++r)
      std::memcpy(out[r] + at + first, sum, static_cast<std::size_t>(m) * sizeof(T));
  }
}

template <class T>
void reduce_slice(reduce_op op, dim_t n, const T* const* in, int size, dim_t from, T* const* out,
                  int outs, dim_t at) {
  const auto keep = [](T x) { return x; };
  const auto add = [](T a, T b) {
    // Integers wrap around, as they do on every machine that would take part.
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  };
  switch (op) {
    case reduce_op::sum:
      return reduce_slice(n, in, size, from, out, outs, at, add, keep);
    case reduce_op::avg:
      if constexpr (std::is_integral_v<T>) {
        const auto mean = [size](T x) {
          return static_cast<T>(
              x / static_cast<std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>(
                      size));
        };
        return reduce_slice(n, in, size, from, out, outs, at, add, mean);
      } else {
        const T scale = T{1} / static_cast<T>(size);
        return reduce_slice(n, in, size, from, out, outs, at, add, [=](T x) { return x * scale; });
      }
    case reduce_op::max:
      return reduce_slice(
          n, in, size, from, out, outs, at, [](T a, T b) { return a < b ? b : a; }, keep);
    case reduce_op::min:
      return reduce_slice(
          n, in, size, from, out, outs, at, [](T a, T b) { return b < a ? b : a; }, keep);
    case reduce_op::bit_or:
      if constexpr (std::is_integral_v<T>)
        return reduce_slice(
            n, in, size, from, out, outs, at, [](T a, T b) { return static_cast<T>(a | b); }, keep);
  }
}

template <class T>
void all_reduce_share(const announcement* row, int rank, int size) {
  const request& mine = row[rank].what;
  // All ranks cut by the memory of rank 0, so that the slices are the same everywhere.
  const slice s = aligned_slice_of<T>(row[0].what.receive, mine.length, size, rank);
  if (s.size() <= 0) return;
  std::array<T*, thread_world::max_size> ranks;
  for (int r = 0; r < size; ++r)
    ranks[static_cast<std::size_t>(r)] = static_cast<T*>(row[r].what.receive);
  if constexpr (floating<T>) {
    if (mine.op == reduce_op::sum || mine.op == reduce_op::avg) {
      const T scale = mine.op == reduce_op::sum ? T{1} : T{1} / static_cast<T>(size);
      return cpu::average_slice(s.size(), ranks.data(), size, s.begin, scale);
    }
  }
  reduce_slice<T>(mine.op, s.size(), ranks.data(), size, s.begin, ranks.data(), size, s.begin);
}

/// Request: `send` holds length * size elements, `receive` length.
template <class T>
void reduce_scatter_share(const announcement* row, int rank, int size) {
  const request& mine = row[rank].what;
  std::array<const T*, thread_world::max_size> ranks;
  for (int r = 0; r < size; ++r)
    ranks[static_cast<std::size_t>(r)] = static_cast<const T*>(row[r].what.send);
  T* out = static_cast<T*>(mine.receive);
  reduce_slice<T>(mine.op, mine.length, ranks.data(), size, mine.length * rank, &out, 1, 0);
}

inline std::size_t bytes_of(const request& r) {
  return static_cast<std::size_t>(r.length) * r.element.size;
}

inline void broadcast_share(const announcement* row, int rank, int) {
  const request& mine = row[rank].what;
  if (rank == mine.root || mine.length == 0) return;
  std::memcpy(mine.receive, row[mine.root].what.receive, bytes_of(mine));
}

/// Request: `send` holds length elements, `receive` length * size. `send` may stand in its place in
/// `receive` already.
inline void all_gather_share(const announcement* row, int rank, int size) {
  const request& mine = row[rank].what;
  const std::size_t bytes = bytes_of(mine);
  if (bytes == 0) return;
  for (int r = 0; r < size; ++r) {
    std::byte* to = static_cast<std::byte*>(mine.receive) + bytes * static_cast<std::size_t>(r);
    if (to != row[r].what.send) std::memcpy(to, row[r].what.send, bytes);
  }
}

inline void barrier_share(const announcement*, int, int) {}

}  // namespace ikebana::detail
