#pragma once

#include <algorithm>
#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/parallel.hpp"

namespace ikebana::cpu {

/// Rows of an array, `step` elements between their beginnings.
template <class T>
struct rows_of {
  T* data = nullptr;
  dim_t step = 0;
  T* operator[](dim_t i) const { return data + i * step; }
  rows_of from(dim_t i) const { return {data == nullptr ? data : data + i * step, step}; }
  explicit operator bool() const { return data != nullptr; }
  operator rows_of<const T>() const requires(!std::is_const_v<T>) { return {data, step}; }
};

/// The columns that pack_recurrent leaves of n rows: whole registers, of any set and type.
constexpr dim_t packed_recurrent_row(dim_t n) {
  constexpr dim_t most_lanes = 16;
  return (n + most_lanes - 1) / most_lanes * most_lanes;
}
/// The elements of n rows of k weights as pack_recurrent leaves them.
constexpr dim_t packed_recurrent_size(dim_t n, dim_t k) { return packed_recurrent_row(n) * k; }

}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/recurrent-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/recurrent_step-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// One time step of the gates of recurrent modules, for m sequences and n hidden units: a pass over
/// rows. What h becomes goes to y, too, where given. Backward's `dy`, where given, is added to
/// `dh`, the gradient that comes from later steps. None allocates or throws.
namespace ikebana::cpu {

namespace detail {

template <class T>
rows_of<T> from_row(rows_of<T> rows, dim_t b) {
  return rows.from(b);
}
template <class T>
T from_row(T value, dim_t) {
  return value;
}
/// kernel(rows, arguments...) for ranges of m rows, which cost as much as `work` elements each.
template <class Kernel, class... Arguments>
[[gnu::always_inline]] inline void share_row_step(dim_t m, dim_t work, Kernel* kernel,
                                                  Arguments... arguments) {
  share_rows(m, work, kernel,
             [=](auto* f, dim_t b, dim_t e) { f(e - b, from_row(arguments, b)...); });
}

}  // namespace detail

/// gates = h = tanh(gates), or max(gates, 0) if `rectified`.
template <class T>
void rnn_gates(dim_t m, dim_t n, bool rectified, rows_of<T> gates, rows_of<T> h,
               rows_of<T> y = {}) {
  detail::share_row_step(m, n, IKEBANA_CPU_DISPATCH_AVX(simple_gates<T>), n, rectified, gates, h,
                         y);
}
/// The gradient of the sums from that of h: `gates` as forward left them.
template <class T>
void rnn_gates_backward(dim_t m, dim_t n, bool rectified, rows_of<const T> gates,
                        rows_of<const T> dh, rows_of<const T> dy, rows_of<T> dgates) {
  detail::share_row_step(m, n, IKEBANA_CPU_DISPATCH_AVX(simple_gates_backward<T>), n, rectified,
                         gates, dh, dy, dgates);
}

/// Long short-term memory (Hochreiter and Schmidhuber, 1997; with forget gates, Gers et al., 2000).
/// `gates` has rows of 4 n, the sums i, f, g, o, and receives sigmoid(i), sigmoid(f), tanh(g),
/// sigmoid(o); c = f c + i g; h = o tanh(c). What c was goes to c_before.
template <class T>
void lstm_gates(dim_t m, dim_t n, rows_of<T> gates, rows_of<T> c, rows_of<T> c_before,
                rows_of<T> tanh_c, rows_of<T> h, rows_of<T> y = {}) {
  detail::share_row_step(m, 4 * n, IKEBANA_CPU_DISPATCH_AVX(memory_gates<T>), n, gates, c, c_before,
                         tanh_c, h, y);
}
/// The gradient of the sums; dc becomes that of c_before.
template <class T>
void lstm_gates_backward(dim_t m, dim_t n, rows_of<const T> gates, rows_of<const T> c_before,
                         rows_of<const T> tanh_c, rows_of<const T> dh, rows_of<const T> dy,
                         rows_of<T> dc, rows_of<T> dgates) {
  detail::share_row_step(m, 4 * n, IKEBANA_CPU_DISPATCH_AVX(memory_gates_backward<T>), n, gates,
                         c_before, tanh_c, dh, dy, dc, dgates);
}

/// Gated recurrent unit (Cho et al., 2014). `gates` and `from_h` have rows of 3 n, the sums r, z, n
/// of x and of h; gates receives r = sigmoid, z = sigmoid, n = tanh(x_n + r h_n), new_from_h the
/// h_n; h = (1 - z) n + z h_before, which may be h.
template <class T>
void gru_gates(dim_t m, dim_t n, rows_of<T> gates, rows_of<const T> from_h, rows_of<T> new_from_h,
               rows_of<const T> h_before, rows_of<T> h, rows_of<T> y = {}) {
  detail::share_row_step(m, 3 * n, IKEBANA_CPU_DISPATCH_AVX(gated_unit<T>), n, gates, from_h,
                         new_from_h, h_before, h, y);
}
/// The gradients of both sums; dh becomes the part of the gradient of h_before that does not go
/// through them.
template <class T>
void gru_gates_backward(dim_t m, dim_t n, rows_of<const T> gates, rows_of<const T> new_from_h,
                        rows_of<const T> h_before, rows_of<T> dh, rows_of<const T> dy,
                        rows_of<T> dgates, rows_of<T> dfrom_h) {
  detail::share_row_step(m, 3 * n, IKEBANA_CPU_DISPATCH_AVX(gated_unit_backward<T>), n, gates,
                         new_from_h, h_before, dh, dy, dgates, dfrom_h);
}

/// to = from, or to = to + from if `adds`, row by row of n.
template <class T>
void move_rows(dim_t m, dim_t n, rows_of<const T> from, rows_of<T> to, bool adds = false) {
  detail::share_row_step(m, n, IKEBANA_CPU_DISPATCH_AVX(copy_state_rows<T>), n, from, to, adds);
}

/// Packs weights, w of (n, k), for recurrent_product under the same instruction set.
template <class T>
void pack_recurrent(dim_t n, dim_t k, const T* w, T* packed) {
  IKEBANA_CPU_DISPATCH_AVX(pack_columns<T>)(n, k, w, packed);
}
/// Rows of `to` = x w^T, plus what they are if `adds`, plus bias (or null), for m rows of x, of k
/// elements; w as packed. The bits of a row do not depend on the others. O(m n k).
template <class T>
void recurrent_product(dim_t m, dim_t n, dim_t k, const T* packed, const T* bias,
                       rows_of<const T> x, rows_of<T> to, bool adds) {
  namespace costs = detail::gemm_costs;
  detail::share_rows(
      m, n * k / costs::products_for_activation, IKEBANA_CPU_DISPATCH_AVX(product_of_columns<T>),
      [=](auto* kernel, dim_t b, dim_t e) {
        kernel(e - b, n, k, packed, bias, x.from(b), to.from(b), adds);
      },
      costs::shared_recurrent_rows);
}

IKEBANA_CPU_KERNEL(pack_recurrent, recurrent_product, rnn_gates, rnn_gates_backward, lstm_gates,
                   lstm_gates_backward, gru_gates, gru_gates_backward, move_rows)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
