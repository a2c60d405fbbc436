#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/reduce.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/softmax-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// Softmax along the middle of three dimensions (outer, n, inner), and cross entropy. Results may
/// be written over an operand. None throws, nor allocates but for the thread's packing buffer, at
/// its first use.
namespace ikebana::cpu {

template <class T>
void softmax_forward(dim_t outer, dim_t n, dim_t inner, const T* x, T* y) {
  detail::run_rows(outer, n * inner, IKEBANA_CPU_DISPATCH_AVX(softmax_rows<T>), n, inner, x, y,
                   false);
}
template <class T>
void log_softmax_forward(dim_t outer, dim_t n, dim_t inner, const T* x, T* y) {
  detail::run_rows(outer, n * inner, IKEBANA_CPU_DISPATCH_AVX(softmax_rows<T>), n, inner, x, y,
                   true);
}
/// dx = y (dy - sum(dy y)).
template <class T>
void softmax_backward(dim_t outer, dim_t n, dim_t inner, const T* y, const T* dy, T* dx) {
  detail::run_rows(outer, n * inner, IKEBANA_CPU_DISPATCH_AVX(softmax_rows_backward<T>), n, inner,
                   y, dy, dx, false);
}
/// dx = dy - exp(y) sum(dy).
template <class T>
void log_softmax_backward(dim_t outer, dim_t n, dim_t inner, const T* y, const T* dy, T* dx) {
  detail::run_rows(outer, n * inner, IKEBANA_CPU_DISPATCH_AVX(softmax_rows_backward<T>), n, inner,
                   y, dy, dx, true);
}

/// Cross entropy of logits (rows x classes) against class indices. The loss of a row is
/// (1 - s) (-log p[target]) + s / classes * sum of -log p, s the label smoothing. `losses_sum`
/// becomes the sum over rows whose target is not `ignore_index`, `counted` their number. Where
/// `dlogits` is given, it becomes grad_scale times the gradient of that sum, zero in ignored rows
/// (for a mean pass 1 / count_targets). It may be `logits`. Targets are in [0, classes) or
/// `ignore_index`.
template <class T>
void cross_entropy(dim_t rows, dim_t classes, const T* logits, const std::int64_t* target,
                   T label_smoothing, std::int64_t ignore_index, T* losses_sum,
                   std::int64_t* counted, T* dlogits, T grad_scale) {
  if (rows * classes <= elements_for_thread) [[likely]]
    return IKEBANA_CPU_DISPATCH_AVX(cross_entropy_rows<T>)(
        rows, classes, logits, target, label_smoothing, ignore_index, losses_sum, counted, dlogits,
        grad_scale);
  constexpr dim_t most = 64;
  dim_t step = detail::rows_for_thread(classes);
  while (step * most < rows) step *= 2;
  T sums[most];
  std::int64_t counts[most];
  parallel_for(0, rows, step, [=, &sums, &counts](dim_t begin, dim_t end) {
    for (dim_t b = begin; b < end; b += step) IKEBANA_CPU_DISPATCH_AVX(cross_entropy_rows<T>)
    (end - b < step ? end - b : step, classes, logits + b * classes, target + b, label_smoothing,
     ignore_index, &sums[b / step], &counts[b / step],
     dlogits == nullptr ? dlogits : dlogits + b * classes, grad_scale);
  });
  detail::sum_tree total;
  *counted = 0;
  for (dim_t i = 0; i * step < rows; ++i) {
    total.put(static_cast<double>(sums[i]));
    *counted += counts[i];
  }
  *losses_sum = static_cast<T>(total.sum());
}

/// How many of the targets are not `ignore_index`.
inline std::int64_t count_targets(dim_t rows, const std::int64_t* target,
                                  std::int64_t ignore_index) {
  std::int64_t n = 0;
  for (dim_t i = 0; i < rows; ++i) n += target[i] != ignore_index;
  return n;
}

IKEBANA_CPU_KERNEL(softmax_forward, log_softmax_forward, softmax_backward, log_softmax_backward,
                   cross_entropy)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
