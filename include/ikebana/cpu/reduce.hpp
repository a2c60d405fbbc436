#pragma once

#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/parallel.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/reduce-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// Sums over arrays. What is added to what depends on n and the instruction set alone, not on
/// threads: blocks of some thousand terms, then pairs of blocks, pairs of these and so on, so that
/// the error grows with the logarithm of their number. None allocates or throws.
namespace ikebana::cpu {

namespace detail {

/// The sums of blocks, one after the other, joined to those of 2, 4, 8 ... neighbours. In double,
/// which costs nothing here. Whether blocks or sums of 2^k neighbours are put in makes no
/// difference to what comes out.
class sum_tree {
 public:
  void put(double sum) {
    int level = 0;
    for (; (count_ >> level & 1) != 0; ++level) sum = joined_[level] + sum;
    joined_[level] = sum;
    ++count_;
  }
  double sum() const {
    double all = 0;
    for (int level = 0; count_ >> level != 0; ++level)
      if ((count_ >> level & 1) != 0) all = joined_[level] + all;
    return all;
  }

 private:
  std::uint64_t count_ = 0;
  double joined_[52];  // joined_[k]: of 2^k blocks, if bit k of count_ is set
};

inline constexpr dim_t block_of_sum = 4096;

/// The sum of part(f, begin, end) over the blocks of [0, n).
template <class T>
[[gnu::noinline]] double sum_of_blocks(dim_t n, T (*part)(const void*, dim_t, dim_t),
                                       const void* f) {
  constexpr dim_t most = 64;
  dim_t step = elements_for_thread;
  while (step * most < n) step *= 2;
  double sums[most];
  parallel_for(0, n, step, [=, &sums](dim_t begin, dim_t end) {
    for (dim_t b = begin; b < end; b += step) {
      const dim_t e = end - b < step ? end : b + step;
      sum_tree tree;
      for (dim_t i = b; i < e; i += block_of_sum)
        tree.put(static_cast<double>(part(f, i, e - i < block_of_sum ? e : i + block_of_sum)));
      sums[b / step] = tree.sum();
    }
  });
  sum_tree tree;
  for (dim_t i = 0; i * step < n; ++i) tree.put(sums[i]);
  return tree.sum();
}
template <class T, class F>
[[gnu::noinline]] double sum_of_blocks(dim_t n, F f) {
  return sum_of_blocks<T>(
      n,
      [](const void* function, dim_t b, dim_t e) -> T {
        return (*static_cast<const F*>(function))(b, e);
      },
      &f);
}
/// The sum of f(kernel, begin, end) over blocks.
template <class T, class Kernel, class F>
[[gnu::always_inline]] inline double sum_in_blocks(dim_t n, Kernel* kernel, const F& f) {
  if (n <= block_of_sum) [[likely]]
    return static_cast<double>(f(kernel, dim_t{0}, n));
  return sum_of_blocks<T>(n, [=](dim_t b, dim_t e) -> T { return f(kernel, b, e); });
}

}  // namespace detail

template <class T>
T sum(dim_t n, const T* x) {
  const auto part = [=](auto* kernel, dim_t b, dim_t e) -> T { return kernel(e - b, x + b); };
  return static_cast<T>(
      detail::sum_in_blocks<T>(n, IKEBANA_CPU_DISPATCH_ONE_WIDTH(sum_array<T>), part));
}
template <class T>
T dot(dim_t n, const T* x, const T* y) {
  const auto part = [=](auto* kernel, dim_t b, dim_t e) -> T {
    return kernel(e - b, x + b, y + b);
  };
  return static_cast<T>(
      detail::sum_in_blocks<T>(n, IKEBANA_CPU_DISPATCH_ONE_WIDTH(dot_arrays<T>), part));
}
/// Blocks are joined in double.
template <class T>
double squared_norm(dim_t n, const T* x) {
  const auto part = [=](auto* kernel, dim_t b, dim_t e) -> T {
    return kernel(e - b, x + b, x + b);
  };
  return detail::sum_in_blocks<T>(n, IKEBANA_CPU_DISPATCH_ONE_WIDTH(dot_arrays<T>), part);
}

/// out[j] = (accumulate ? out[j] : 0) + sum over i of x[i * ldx + j], for i < m, j < n: the
/// gradient of a bias.
template <class T>
void column_sums(dim_t m, dim_t n, const T* x, dim_t ldx, T* out, bool accumulate) {
  const auto sums = [=](auto* kernel, dim_t b, dim_t e) {
    kernel(m, e - b, x + b, ldx, out + b, accumulate);
  };
  detail::share_rows(n, m, IKEBANA_CPU_DISPATCH_ONE_WIDTH(sum_columns<T>), sums, 64);
}

/// The sum of (x[i] - t[i])^2; where dx is given, dx[i] = grad_scale (x[i] - t[i]).
template <class T>
T mse(dim_t n, const T* x, const T* t, T* dx, T grad_scale) {
  return static_cast<T>(detail::sum_in_blocks<T>(
      n, IKEBANA_CPU_DISPATCH_ONE_WIDTH(sum_squared_difference<T>),
      [=](auto* kernel, dim_t b, dim_t e) -> T {
        return kernel(e - b, x + b, t + b, dx == nullptr ? dx : dx + b, grad_scale);
      }));
}

IKEBANA_CPU_KERNEL(sum, dot, squared_norm, column_sums, mse)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
