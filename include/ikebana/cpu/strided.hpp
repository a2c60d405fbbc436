#pragma once

#include <cstddef>
#include <cstring>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana::cpu {

/// Where the elements of an array, in row-major order of `extents`, are in another array: element i
/// is at offset + the sum of i[d] * strides[d]. A stride of 0 repeats elements (broadcasting), a
/// negative one reverses them.
struct strided_map {
  std::size_t rank = 0;
  dim_t extents[shape::max_rank]{};
  dim_t strides[shape::max_rank]{};
  dim_t offset = 0;

  constexpr void push_back(dim_t extent, dim_t stride) {
    extents[rank] = extent;
    strides[rank++] = stride;
  }
  /// Whether element i is at offset + i.
  constexpr bool is_dense() const { return rank == 0 || (rank == 1 && strides[0] == 1); }
  /// Whether all elements are the same one.
  constexpr bool is_repeated() const { return rank == 1 && strides[0] == 0; }
};

/// The same map with as few dimensions as possible.
constexpr strided_map merged(const strided_map& m) {
  strided_map out;
  out.offset = m.offset;
  for (std::size_t d = 0; d < m.rank; ++d) {
    if (m.extents[d] == 1) continue;
    if (out.rank > 0 && out.strides[out.rank - 1] == m.extents[d] * m.strides[d]) {
      out.extents[out.rank - 1] *= m.extents[d];
      out.strides[out.rank - 1] = m.strides[d];
    } else {
      out.push_back(m.extents[d], m.strides[d]);
    }
  }
  return out;
}

/// An array of this shape in its own order, or with these steps along its dimensions.
constexpr strided_map dense_map(const shape& s, const dim_t* strides = nullptr) {
  strided_map m;
  for (std::size_t d = 0; d < s.rank(); ++d) m.push_back(s[d], strides == nullptr ? 1 : strides[d]);
  if (strides != nullptr) return m;
  for (std::size_t d = s.rank(); d-- > 1;) m.strides[d - 1] = m.strides[d] * s[d];
  return m;
}

/// An array of shape `from` repeated to the shape `to`, whose last dimensions are those of `from`
/// or repeat an extent of 1. `strides`: those of `from` if it is not contiguous.
constexpr strided_map broadcast_map(const shape& from, const shape& to,
                                    const dim_t* strides = nullptr) {
  const strided_map own = dense_map(from, strides);
  strided_map m;
  for (std::size_t d = 0, skip = to.rank() - from.rank(); d < to.rank(); ++d)
    m.push_back(to[d], d < skip || from[d - skip] == 1 ? 0 : own.strides[d - skip]);
  return merged(m);
}

/// Calls f(offset, stride, i, count) for runs of the elements first to first + n: element i + k of
/// the run is at offset + k * stride, for k < count. O(runs); no allocation.
template <class F>
void for_each_run(const strided_map& m, dim_t first, dim_t n, F f) {
  if (n <= 0) return;
  if (m.rank == 0) return f(m.offset, dim_t{1}, dim_t{0}, n);
  dim_t index[shape::max_rank], at = m.offset;
  for (std::size_t d = m.rank; d-- > 0; first /= m.extents[d]) {
    index[d] = first % m.extents[d];
    at += index[d] * m.strides[d];
  }
  const std::size_t last = m.rank - 1;
  const dim_t extent = m.extents[last], stride = m.strides[last];
  for (dim_t i = 0; i < n;) {
    const dim_t left = extent - index[last], count = left < n - i ? left : n - i;
    f(at, stride, i, count);
    if ((i += count) == n) return;
    at -= index[last] * stride;
    index[last] = 0;
    for (std::size_t d = last; d-- > 0;) {
      at += m.strides[d];
      if (++index[d] < m.extents[d]) break;
      at -= m.strides[d] * m.extents[d];
      index[d] = 0;
    }
  }
}

namespace detail {

// Compilers vectorise these at -O2, since they know how often an inner loop runs.

template <class T>
void fill_run(T* to, dim_t n, T value) {
  dim_t k = 0;
  for (; k + 16 <= n; k += 16)
    for (dim_t j = 0; j < 16; ++j) to[k + j] = value;
  for (; k < n; ++k) to[k] = value;
}
template <class T>
T sum_run(const T* from, dim_t n) {
  T parts[16]{};
  dim_t k = 0;
  for (; k + 16 <= n; k += 16)
    for (dim_t j = 0; j < 16; ++j) parts[j] += from[k + j];
  T sum{};
  for (; k < n; ++k) sum += from[k];
  for (dim_t j = 0; j < 16 && n >= 16; ++j) sum += parts[j];
  return sum;
}
template <class T>
void add_run(T* __restrict to, const T* __restrict from, dim_t n) {
  dim_t k = 0;
  for (; k + 16 <= n; k += 16)
    for (dim_t j = 0; j < 16; ++j) to[k + j] += from[k + j];
  for (; k < n; ++k) to[k] += from[k];
}

}  // namespace detail

/// to[i] = the element first + i, for i < n.
template <class T>
void read_strided(const strided_map& m, const T* from, dim_t first, dim_t n, T* to) {
  for_each_run(m, first, n, [=](dim_t at, dim_t stride, dim_t i, dim_t count) {
    if (stride == 1)
      std::memcpy(to + i, from + at, static_cast<std::size_t>(count) * sizeof(T));
    else if (stride == 0)
      detail::fill_run(to + i, count, from[at]);
    else
      for (dim_t k = 0; k < count; ++k) to[i + k] = from[at + k * stride];
  });
}

/// The element first + i = from[i], for i < n.
template <class T>
void write_strided(const strided_map& m, T* to, dim_t first, dim_t n, const T* from) {
  for_each_run(m, first, n, [=](dim_t at, dim_t stride, dim_t i, dim_t count) {
    if (stride == 1)
      std::memcpy(to + at, from + i, static_cast<std::size_t>(count) * sizeof(T));
    else
      for (dim_t k = 0; k < count; ++k) to[at + k * stride] = from[i + k];
  });
}

/// Adds from[i] to the element first + i, for i < n. What is added to one element of a run is
/// summed first.
template <class T>
void add_strided(const strided_map& m, T* to, dim_t first, dim_t n, const T* from) {
  for_each_run(m, first, n, [=](dim_t at, dim_t stride, dim_t i, dim_t count) {
    if (stride == 0)
      to[at] += detail::sum_run(from + i, count);
    else if (stride == 1)
      detail::add_run(to + at, from + i, count);
    else
      for (dim_t k = 0; k < count; ++k) to[at + k * stride] += from[i + k];
  });
}

}  // namespace ikebana::cpu
