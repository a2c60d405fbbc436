#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/strided.hpp"
#include "ikebana/cpu/tensor_ops.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// Reductions over any dimensions of an array. What is added to what depends on the extents and the
/// instruction set alone: blocks of some thousand terms, whose sums are added in double. None
/// allocates or throws; O(elements).
namespace ikebana::cpu {

/// The dimensions of an array, with neighbours that are both kept or both reduced as one: kept and
/// reduced alternate.
struct fold_dims {
  std::size_t rank = 0;
  dim_t extents[shape::max_rank]{};
  bool first_is_reduced = false;

  constexpr bool is_reduced(std::size_t d) const { return (d % 2 == 0) == first_is_reduced; }
  constexpr void push_back(dim_t extent, bool reduced) {
    if (extent == 1) return;
    if (rank > 0 && is_reduced(rank - 1) == reduced) {
      extents[rank - 1] *= extent;
      return;
    }
    if (rank == 0) first_is_reduced = reduced;
    extents[rank++] = extent;
  }
  constexpr dim_t count(bool reduced, std::size_t from = 0) const {
    dim_t n = 1;
    for (std::size_t d = from; d < rank; ++d)
      if (is_reduced(d) == reduced) n *= extents[d];
    return n;
  }
};

namespace detail {

inline constexpr dim_t fold_block = 4096, fold_lanes = 256;

template <class T>
T fold_run(fold_op f, dim_t n, const T* x, T m, T p, T acc) {
  if (n <= fold_block || f >= fold_op::max) return fold_row(f, n, x, m, p, acc);
  double sum = 0;
  for (dim_t i = 0; i < n; i += fold_block)
    sum +=
        static_cast<double>(fold_row(f, n - i < fold_block ? n - i : fold_block, x + i, m, p, T{}));
  return static_cast<T>(static_cast<double>(acc) + sum);
}

template <class T>
void fold_lines(fold_op f, dim_t n, dim_t columns, const T* x, const T* m, T p, T* acc) {
  if (n <= fold_lanes || f >= fold_op::max)
    return fold_columns(f, n, columns, x, columns, m, p, acc);
  for (dim_t j = 0; j < columns; j += fold_lanes) {
    const dim_t width = columns - j < fold_lanes ? columns - j : fold_lanes;
    double sums[fold_lanes]{};
    for (dim_t i = 0; i < n; i += fold_lanes) {
      T part[fold_lanes]{};
      fold_columns(f, n - i < fold_lanes ? n - i : fold_lanes, width, x + i * columns + j, columns,
                   m == nullptr ? m : m + j, p, part);
      for (dim_t k = 0; k < width; ++k) sums[k] += static_cast<double>(part[k]);
    }
    for (dim_t k = 0; k < width; ++k)
      acc[j + k] = static_cast<T>(static_cast<double>(acc[j + k]) + sums[k]);
  }
}

template <class T>
void fold_from(fold_op f, const fold_dims& dims, std::size_t d, const T* x, const T* m, T p,
               T* acc) {
  const std::size_t left = dims.rank - d;
  if (left == 0) {
    *acc = fold_run(f, 1, x, m == nullptr ? T{} : *m, p, *acc);
  } else if (left == 1 && dims.is_reduced(d)) {
    *acc = fold_run(f, dims.extents[d], x, m == nullptr ? T{} : *m, p, *acc);
  } else if (left == 1) {
    fold_lines(f, 1, dims.extents[d], x, m, p, acc);
  } else if (left == 2 && dims.is_reduced(d)) {
    fold_lines(f, dims.extents[d], dims.extents[d + 1], x, m, p, acc);
  } else {
    const dim_t step = dims.count(false, d + 1);
    const dim_t size = step * dims.count(true, d + 1), to = dims.is_reduced(d) ? 0 : step;
    for (dim_t i = 0; i < dims.extents[d]; ++i, acc += to) {
      fold_from(f, dims, d + 1, x + i * size, m, p, acc);
      if (m != nullptr) m += to;
    }
  }
}

}  // namespace detail

/// acc = acc + the sum of f over what is reduced (or the larger, or the lesser), for each element
/// that is kept, to which m belongs, too.
template <class T>
void fold(fold_op f, const fold_dims& dims, const T* x, const T* m, T p, T* acc) {
  const dim_t size = dims.count(true) * dims.count(false);
  if (size == 0) return;
  if (dims.rank < 2 || dims.first_is_reduced || size <= elements_for_thread)
    return detail::fold_from(f, dims, 0, x, m, p, acc);
  const dim_t step = dims.count(false, 1), each = step * dims.count(true);
  parallel_for(0, dims.extents[0], detail::rows_for_thread(each), [=](dim_t b, dim_t e) {
    fold_dims part = dims;
    part.extents[0] = e - b;
    detail::fold_from(f, part, 0, x + b * each, m == nullptr ? m : m + b * step, p, acc + b * step);
  });
}

/// fold_backward for each of n elements of x, whose m and g are at `map`.
template <class T>
void fold_gradient(fold_op f, const strided_map& map, dim_t n, const T* x, const T* m, const T* g,
                   T p, T factor, T* dx) {
  parallel_for(0, n, elements_for_thread, [=](dim_t first, dim_t last) {
    T of_m[detail::fold_lanes], of_g[detail::fold_lanes];
    for (dim_t i = first; i < last; i += detail::fold_lanes) {
      const dim_t count = last - i < detail::fold_lanes ? last - i : detail::fold_lanes;
      if (m != nullptr) read_strided(map, m, i, count, of_m);
      read_strided(map, g, i, count, of_g);
      fold_backward(f, count, x == nullptr ? x : x + i, of_m, of_g, p, factor, dx + i);
    }
  });
}

IKEBANA_CPU_KERNEL(fold, fold_gradient)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
