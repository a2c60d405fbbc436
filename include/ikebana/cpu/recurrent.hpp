#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
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

/// gates = h = tanh(gates), or max(gates, 0) if `rectified`.
template <class T>
void rnn_gates(dim_t m, dim_t n, bool rectified, rows_of<T> gates, rows_of<T> h,
               rows_of<T> y = {}) {
  detail::share_rows(m, n, IKEBANA_CPU_DISPATCH_AVX(simple_gates<T>),
                     [=](auto* kernel, dim_t b, dim_t e) {
                       kernel(e - b, n, rectified, gates.from(b), h.from(b), y.from(b));
                     });
}
/// The gradient of the sums from that of h: `gates` as forward left them.
template <class T>
void rnn_gates_backward(dim_t m, dim_t n, bool rectified, rows_of<const T> gates,
                        rows_of<const T> dh, rows_of<const T> dy, rows_of<T> dgates) {
  detail::share_rows(m, n, IKEBANA_CPU_DISPATCH_AVX(simple_gates_backward<T>),
                     [=](auto* kernel, dim_t b, dim_t e) {
                       kernel(e - b, n, rectified, gates.from(b), dh.from(b), dy.from(b),
                              dgates.from(b));
                     });
}

/// Long short-term memory (Hochreiter and Schmidhuber, 1997; with forget gates, Gers et al., 2000).
/// `gates` has rows of 4 n, the sums i, f, g, o, and receives sigmoid(i), sigmoid(f), tanh(g),
/// sigmoid(o); c = f c + i g; h = o tanh(c). What c was goes to c_before.
template <class T>
void lstm_gates(dim_t m, dim_t n, rows_of<T> gates, rows_of<T> c, rows_of<T> c_before,
                rows_of<T> tanh_c, rows_of<T> h, rows_of<T> y = {}) {
  detail::share_rows(m, 4 * n, IKEBANA_CPU_DISPATCH_AVX(memory_gates<T>),
                     [=](auto* kernel, dim_t b, dim_t e) {
                       kernel(e - b, n, gates.from(b), c.from(b), c_before.from(b), tanh_c.from(b),
                              h.from(b), y.from(b));
                     });
}
/// The gradient of the sums; dc becomes that of c_before.
template <class T>
void lstm_gates_backward(dim_t m, dim_t n, rows_of<const T> gates, rows_of<const T> c_before,
                         rows_of<const T> tanh_c, rows_of<const T> dh, rows_of<const T> dy,
                         rows_of<T> dc, rows_of<T> dgates) {
  detail::share_rows(m, 4 * n, IKEBANA_CPU_DISPATCH_AVX(memory_gates_backward<T>),
                     [=](auto* kernel, dim_t b, dim_t e) {
                       kernel(e - b, n, gates.from(b), c_before.from(b), tanh_c.from(b), dh.from(b),
                              dy.from(b), dc.from(b), dgates.from(b));
                     });
}

/// Gated recurrent unit (Cho et al., 2014). `gates` and `from_h` have rows of 3 n, the sums r, z, n
/// of x and of h; gates receives r = sigmoid, z = sigmoid, n = tanh(x_n + r h_n), new_from_h the
/// h_n; h = (1 - z) n + z h_before, which may be h.
template <class T>
void gru_gates(dim_t m, dim_t n, rows_of<T> gates, rows_of<const T> from_h, rows_of<T> new_from_h,
               rows_of<const T> h_before, rows_of<T> h, rows_of<T> y = {}) {
  detail::share_rows(m, 3 * n, IKEBANA_CPU_DISPATCH_AVX(gated_unit<T>),
                     [=](auto* kernel, dim_t b, dim_t e) {
                       kernel(e - b, n, gates.from(b), from_h.from(b), new_from_h.from(b),
                              h_before.from(b), h.from(b), y.from(b));
                     });
}
/// The gradients of both sums; dh becomes the part of the gradient of h_before that does not go
/// through them.
template <class T>
void gru_gates_backward(dim_t m, dim_t n, rows_of<const T> gates, rows_of<const T> new_from_h,
                        rows_of<const T> h_before, rows_of<T> dh, rows_of<const T> dy,
                        rows_of<T> dgates, rows_of<T> dfrom_h) {
  detail::share_rows(m, 3 * n, IKEBANA_CPU_DISPATCH_AVX(gated_unit_backward<T>),
                     [=](auto* kernel, dim_t b, dim_t e) {
                       kernel(e - b, n, gates.from(b), new_from_h.from(b), h_before.from(b),
                              dh.from(b), dy.from(b), dgates.from(b), dfrom_h.from(b));
                     });
}

/// to = from, or to = to + from if `adds`, row by row of n.
template <class T>
void move_rows(dim_t m, dim_t n, rows_of<const T> from, rows_of<T> to, bool adds = false) {
  detail::share_rows(
      m, n, IKEBANA_CPU_DISPATCH_AVX(copy_state_rows<T>),
      [=](auto* kernel, dim_t b, dim_t e) { kernel(e - b, n, from.from(b), to.from(b), adds); });
}

/// The elements of n rows of k weights as pack_recurrent leaves them.
constexpr dim_t packed_recurrent_size(dim_t n, dim_t k) { return (n + 15) / 16 * 16 * k; }

/// Packs weights, w of (n, k), for recurrent_product under the same instruction set.
template <class T>
void pack_recurrent(dim_t n, dim_t k, const T* w, T* packed) {
  IKEBANA_CPU_DISPATCH_AVX(pack_panels<T>)(n, k, w, packed);
}
/// Rows of `to` = x w^T, plus what they are if `adds`, plus bias (or null), for m rows of x, of k
/// elements; w as packed. The bits of a row do not depend on the others. O(m n k).
template <class T>
void recurrent_product(dim_t m, dim_t n, dim_t k, const T* packed, const T* bias,
                       rows_of<const T> x, rows_of<T> to, bool adds) {
  // A step of a stream takes nanoseconds: its arguments stay in registers.
  if (m == 1)
    return IKEBANA_CPU_DISPATCH_AVX(row_of_panels<T>)(n, k, packed, bias, x.data, to.data, adds);
  // Some 16 multiplications take as long as an element of an activation. The kernel takes up to 6
  // rows together.
  const auto product = [=](auto* kernel, dim_t b, dim_t e) {
    kernel(e - b, n, k, packed, bias, x.from(b), to.from(b), adds);
  };
  detail::share_rows(m, n * k / 16, IKEBANA_CPU_DISPATCH_AVX(product_of_panels<T>), product, 6);
}

IKEBANA_CPU_KERNEL(pack_recurrent)
IKEBANA_CPU_KERNEL(recurrent_product)
IKEBANA_CPU_KERNEL(rnn_gates)
IKEBANA_CPU_KERNEL(rnn_gates_backward)
IKEBANA_CPU_KERNEL(lstm_gates)
IKEBANA_CPU_KERNEL(lstm_gates_backward)
IKEBANA_CPU_KERNEL(gru_gates)
IKEBANA_CPU_KERNEL(gru_gates_backward)
IKEBANA_CPU_KERNEL(move_rows)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
