#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/attention.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/softmax.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/attention/weights-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// Attention that hands out its weights: what attention.hpp computes, with a matrix of queries by
/// keys. None allocates or throws.
namespace ikebana::cpu {

/// x = softmax of (x + added) over the keys that are not ignored, row by row, in place; 0 for those
/// that are. A row that ignores every key, or has a score of -infinity for each, becomes 0.
/// `ignored` and `added` are (rows, columns), `ignored_keys` is (columns).
template <class T>
void masked_softmax(dim_t rows, dim_t columns, T* x, const std::type_identity_t<T>* added,
                    const bool* ignored, const bool* ignored_keys, bool causal) {
  IKEBANA_CPU_DISPATCH_AVX(masked_softmax_rows<T>)
  (rows, columns, x, added, ignored, ignored_keys, causal);
}

/// out = dropout(softmax(q k^T / sqrt(width) + masks)) v for each batch and head.
/// `weights` (batch, heads, queries, keys) becomes the softmax; `used_weights`, where given, the
/// dropped weights: their mean over heads (batch, queries, keys), or all of them, as `weights`, if
/// not `averaged`. `scratch`: queries * keys elements, used with dropout alone. O(batch heads
/// queries keys width).
template <class T>
void attention_weights_forward(const attention_sizes& n, attention_operand<const T> q,
                               attention_operand<const T> k, attention_operand<const T> v,
                               const attention_masks<T>& masks, const attention_dropout& dropped,
                               T* weights, attention_operand<T> out, T* used_weights, bool averaged,
                               T* scratch) {
  const dim_t area = n.queries * n.keys;
  const T scale = T{1} / static_cast<T>(__builtin_sqrt(static_cast<double>(n.width)));
  for (dim_t b = 0; b < n.batch; ++b) {
    if (used_weights != nullptr && averaged) fill(area, used_weights + b * area, T{0});
    for (dim_t h = 0; h < n.heads; ++h) {
      const dim_t index = b * n.heads + h, at = h * n.width;
      const dim_t mask_at = masks.for_each_head ? index * area : 0;
      T* w = weights + index * area;
      gemm<T>(transpose::no, transpose::yes, n.queries, n.keys, n.width, scale,
              q.data + b * q.batch + at, q.row, k.data + b * k.batch + at, k.row, T{0}, w, n.keys);
      masked_softmax(n.queries, n.keys, w, masks.added == nullptr ? nullptr : masks.added + mask_at,
                     masks.ignored == nullptr ? nullptr : masks.ignored + mask_at,
                     masks.ignored_keys == nullptr ? nullptr : masks.ignored_keys + b * n.keys,
                     masks.causal);
      if (dropped.p > 0) {
        dropout<T>(area, w, scratch, dropped.p, dropped.stream,
                   static_cast<std::uint64_t>(index * area));
        w = scratch;
      }
      if (used_weights != nullptr && averaged)
        axpy(area, T{1} / static_cast<T>(n.heads), w, used_weights + b * area);
      else if (used_weights != nullptr)
        std::copy_n(w, area, used_weights + index * area);
      gemm<T>(transpose::no, transpose::no, n.queries, n.width, n.keys, T{1}, w, n.keys,
              v.data + b * v.batch + at, v.row, T{0}, out.data + b * out.batch + at, out.row);
    }
  }
}

/// The gradients of attention_weights_forward. `dq` holds the gradient of `out` and becomes that of
/// q; `dk` and `dv` are overwritten. `dused`: the gradient of `used_weights`, or null. `dadded`,
/// where given, becomes the gradient of the mask that is added, of its shape. `scratch`: 2 *
/// queries * keys elements.
template <class T>
void attention_weights_backward(const attention_sizes& n, attention_operand<const T> q,
                                attention_operand<const T> k, attention_operand<const T> v,
                                const attention_dropout& dropped, const T* weights, const T* dused,
                                bool averaged, attention_operand<T> dq, attention_operand<T> dk,
                                attention_operand<T> dv, T* dadded, bool added_for_each_head,
                                T* scratch) {
  const dim_t area = n.queries * n.keys;
  const T scale = T{1} / static_cast<T>(__builtin_sqrt(static_cast<double>(n.width)));
  if (dadded != nullptr && !added_for_each_head) fill(area, dadded, T{0});
  for (dim_t b = 0; b < n.batch; ++b)
    for (dim_t h = 0; h < n.heads; ++h) {
      const dim_t index = b * n.heads + h, at = h * n.width;
      const auto first = static_cast<std::uint64_t>(index * area);
      const T* w = weights + index * area;
      const T* used = w;
      T* d = dadded != nullptr && added_for_each_head ? dadded + index * area : scratch;
      T* dout = dq.data + b * dq.batch + at;
      gemm<T>(transpose::no, transpose::yes, n.queries, n.keys, n.width, T{1}, dout, dq.row,
              v.data + b * v.batch + at, v.row, T{0}, d, n.keys);
      if (dused != nullptr)
        axpy(area, averaged ? T{1} / static_cast<T>(n.heads) : T{1},
             dused + (averaged ? b : index) * area, d);
      if (dropped.p > 0) {
        dropout<T>(area, w, scratch + area, dropped.p, dropped.stream, first);
        used = scratch + area;
        dropout<T>(area, d, d, dropped.p, dropped.stream, first);
      }
      gemm<T>(transpose::yes, transpose::no, n.keys, n.width, n.queries, T{1}, used, n.keys, dout,
              dq.row, T{0}, dv.data + b * dv.batch + at, dv.row);
      softmax_backward<T>(n.queries, n.keys, 1, w, d, d);
      if (dadded != nullptr && !added_for_each_head) axpy(area, T{1}, d, dadded);
      gemm<T>(transpose::no, transpose::no, n.queries, n.width, n.keys, scale, d, n.keys,
              k.data + b * k.batch + at, k.row, T{0}, dout, dq.row);
      gemm<T>(transpose::yes, transpose::no, n.keys, n.width, n.queries, scale, d, n.keys,
              q.data + b * q.batch + at, q.row, T{0}, dk.data + b * dk.batch + at, dk.row);
    }
}

IKEBANA_CPU_KERNEL(masked_softmax, attention_weights_forward, attention_weights_backward)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
