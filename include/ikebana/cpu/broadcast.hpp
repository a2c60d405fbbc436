#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/strided.hpp"
#include "ikebana/cpu/tensor_ops.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// Element-wise functions of operands of different shapes, repeated as NumPy does. Operands are
/// read through blocks on the stack, unless they have every element in order. None allocates or
/// throws; O(elements of the result).
namespace ikebana::cpu {

/// An array whose elements are repeated, or a number.
template <class T>
struct broadcast_operand {
  const T* data = nullptr;  ///< Null for a number.
  strided_map map{};
  T number{};
};

namespace detail {

inline constexpr dim_t broadcast_block = 512;

/// Reads blocks of an operand.
template <class T>
class operand_reader {
 public:
  /// Null if there is no such operand.
  void open(const broadcast_operand<T>* of) {
    of_ = of;
    if (of == nullptr) return;
    repeats_ = of->data == nullptr || of->map.is_repeated();
    if (!repeats_) return;
    const T x = of->data == nullptr ? of->number : of->data[of->map.offset];
    for (T& b : block_) b = x;
  }
  /// Whether all its elements can be read at once.
  bool is_whole() const { return of_ == nullptr || (!repeats_ && of_->map.is_dense()); }
  const T* read(dim_t first, dim_t n) {
    if (of_ == nullptr) return nullptr;
    if (repeats_) return block_;
    if (of_->map.is_dense()) return of_->data + of_->map.offset + first;
    read_strided(of_->map, of_->data, first, n, block_);
    return block_;
  }

 private:
  const broadcast_operand<T>* of_ = nullptr;
  bool repeats_ = false;
  T block_[broadcast_block];
};

/// Calls f(i, n, a, b, c) for blocks of n elements of the operands, all in one if `whole` and they
/// can be read so.
template <class T, class F>
void for_operand_blocks(int count, const broadcast_operand<T>* x, bool whole, dim_t first,
                        dim_t last, F f) {
  operand_reader<T> r[3];
  for (int i = 0; i < count; ++i) {
    r[i].open(x + i);
    whole = whole && r[i].is_whole();
  }
  const dim_t step = whole ? last - first : broadcast_block;
  for (dim_t i = first; i < last; i += step) {
    const dim_t n = last - i < step ? last - i : step;
    const T* const a = r[0].read(i, n);
    f(i, n, a, r[1].read(i, n), r[2].read(i, n));
  }
}

}  // namespace detail

/// y = f(x[0], x[1], ...), element by element, for n elements of y.
template <class T>
void broadcast_forward(tensor_op f, int count, const broadcast_operand<T>* x, dim_t n, T* y) {
  parallel_for(0, n, elements_for_thread, [=](dim_t first, dim_t last) {
    detail::for_operand_blocks(count, x, true, first, last,
                               [=](dim_t i, dim_t m, const T* a, const T* b, const T* c) {
                                 tensor_op_forward(f, m, a, b, c, y + i);
                               });
  });
}

/// d = the gradient of operand `by`: dy times the derivative, summed over the elements that
/// repeat one of its own, of which it has `own`, and which `to` maps.
template <class T>
void broadcast_backward(tensor_op f, int by, int count, const broadcast_operand<T>* x, dim_t n,
                        const T* y, const T* dy, const strided_map& to, dim_t own, T* d) {
  const bool is_dense = to.is_dense();
  if (!is_dense)
    for (dim_t i = 0; i < own; ++i) d[i] = T{};
  const auto part = [=](dim_t first, dim_t last) {
    T block[detail::broadcast_block];
    detail::for_operand_blocks(count, x, is_dense, first, last,
                               [=, &block](dim_t i, dim_t m, const T* a, const T* b, const T* c) {
                                 T* const out = is_dense ? d + i : block;
                                 tensor_op_backward(f, by, m, a, b, c, y == nullptr ? y : y + i,
                                                    dy + i, out);
                                 if (!is_dense) add_strided(to, d, i, m, block);
                               });
  };
  if (is_dense)
    parallel_for(0, n, elements_for_thread, part);
  else
    part(0, n);
}

IKEBANA_CPU_KERNEL(broadcast_forward, broadcast_backward)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
