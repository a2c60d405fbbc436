#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/reduce.hpp"

namespace ikebana::cpu::detail {

template <class T>
using rows_function = void (*)(const void* f, dim_t begin, dim_t end, T* first, T* second,
                               bool accumulate);

template <class T>
[[gnu::noinline]] void share_many_rows_of_sums(dim_t rows, dim_t step, dim_t n, T* first, T* second,
                                               bool accumulate, rows_function<T> run,
                                               const void* f) {
  const bool has_sums = first != nullptr || second != nullptr;
  const auto room = static_cast<dim_t>(packed_b_bytes / (2 * sizeof(T))) / (n > 1 ? n : 1);
  const dim_t most = room < 16 ? room : 16;
  if (rows <= step || (has_sums && most < 2)) return run(f, 0, rows, first, second, accumulate);
  while (has_sums && step * most < rows) step *= 2;
  const dim_t parts = (rows + step - 1) / step;
  T* const firsts = has_sums ? thread_scratch<T>() : nullptr;
  T* const seconds = has_sums ? firsts + parts * n : nullptr;
  parallel_for(0, parts, 1, [=](dim_t begin, dim_t end) {
    for (dim_t i = begin; i < end; ++i)
      run(f, i * step, i + 1 == parts ? rows : (i + 1) * step,
          first == nullptr ? first : firsts + i * n, second == nullptr ? second : seconds + i * n,
          false);
  });
  if (first != nullptr) column_sums<T>(parts, n, firsts, n, first, accumulate);
  if (second != nullptr) column_sums<T>(parts, n, seconds, n, second, accumulate);
}

/// Shares out rows of `width`, a multiple of `whole` of them at a time, of which each adds n terms
/// to `first` and to `second` (either may be null): f(kernel, begin, end, first, second,
/// accumulate). Where they are worth several threads, parts of the rows, whose number depends on
/// these sizes alone, have sums of their own, in the thread's scratch memory, which the kernel must
/// not use.
template <class T, class Kernel, class F>
[[gnu::always_inline]] inline void share_rows_of_sums(dim_t rows, dim_t width, dim_t whole, dim_t n,
                                                      T* first, T* second, bool accumulate,
                                                      Kernel* kernel, const F& f) {
  if (rows * width <= elements_for_thread) [[likely]]
    return f(kernel, dim_t{0}, rows, first, second, accumulate);
  const auto run = [=](dim_t b, dim_t e, T* to, T* other, bool adds) {
    f(kernel, b, e, to, other, adds);
  };
  share_many_rows_of_sums<T>(
      rows, rows_for_thread(width, whole), n, first, second, accumulate,
      [](const void* function, dim_t b, dim_t e, T* to, T* other, bool adds) {
        (*static_cast<const decltype(run)*>(function))(b, e, to, other, adds);
      },
      &run);
}

}  // namespace ikebana::cpu::detail
