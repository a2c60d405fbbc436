#pragma once

#include <cmath>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/elementwise.hpp"

namespace ikebana::cpu {

/// Functions of up to three numbers. Comparisons yield 1 or 0; `where` is a != 0 ? b : c; `clamp`
/// is a between b and c. The others are as in PyTorch, not-a-number included.
enum class tensor_op : unsigned char {
  neg,
  exp,
  log,
  sqrt,
  rsqrt,
  square,
  reciprocal,
  abs,
  sign,
  erf,
  add,
  sub,
  mul,
  div,
  pow,
  minimum,
  maximum,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  where,
  clamp
};

/// What a reduction does with its elements, m being a number for each result: sums of x,
/// (x - m)^2, exp(x - m), |x|, x^2, |x|^p, or of 1 where x, or |x|, is m; the largest or least x,
/// or the largest |x|.
enum class fold_op : unsigned char {
  sum,
  deviation,
  exp,
  abs,
  square,
  power,
  equal,
  equal_abs,
  max,
  min,
  max_abs
};

}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/tensor_ops-inl.hpp"
#define IKEBANA_CPU_SETS 1
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// The element-wise functions and reductions of values of a graph, on contiguous arrays. None
/// allocates or throws.
namespace ikebana::cpu {

/// y[i] = f(a[i], b[i], c[i]); those that f has not may be null. y may be an operand.
template <class T>
void tensor_op_forward(tensor_op f, dim_t n, const T* a, const T* b, const T* c, T* y) {
  if (f == tensor_op::exp) return exp<T>(n, a, y);
  if (f == tensor_op::log) return log<T>(n, a, y);
  if (f == tensor_op::erf) return erf<T>(n, a, y);
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(map_tensor_op<T>)(f, n, a, b, c, y);
}

/// d[i] = dy[i] times the derivative of f with respect to operand `by`. d may be dy. Where
/// operands of `minimum` or `maximum` are equal, each gets half.
template <class T>
void tensor_op_backward(tensor_op f, int by, dim_t n, const T* a, const T* b, const T* c,
                        const T* y, const T* dy, T* d) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(map_tensor_op_backward<T>)(f, by, n, a, b, c, y, dy, d);
}

/// acc[j] = acc[j] + f(x[i * ldx + j], m[j]) for i < n, j < columns (or the larger, or the lesser
/// of both). m may be null where f has none; p is the exponent of `power`.
template <class T>
void fold_columns(fold_op f, dim_t n, dim_t columns, const T* x, dim_t ldx, const T* m, T p,
                  T* acc) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(fold_columns_of<T>)(f, n, columns, x, ldx, m, p, acc);
}
/// acc + f(x[i], m), for i < n.
template <class T>
T fold_row(fold_op f, dim_t n, const T* x, T m, T p, T acc) {
  return IKEBANA_CPU_DISPATCH_ONE_WIDTH(fold_row_of<T>)(f, n, x, m, p, acc);
}
/// dx[i] = g[i] factor d, d the derivative of f with respect to x: 1 for `sum`, x - m for
/// `deviation`, exp(x - m), sign(x) for `abs`, x for `square`, x |x|^(p - 2) for `power`; for
/// `max` and `min`, whether x is m, for `max_abs` sign(x) where |x| is m.
template <class T>
void fold_backward(fold_op f, dim_t n, const T* x, const T* m, const T* g, T p, T factor, T* dx) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(map_fold_backward<T>)(f, n, x, m, g, p, factor, dx);
}

IKEBANA_CPU_KERNEL(tensor_op_forward, tensor_op_backward, fold_columns, fold_row, fold_backward)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
