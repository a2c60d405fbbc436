#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/parallel.hpp"

namespace ikebana::cpu {

/// `width` is that of one head.
struct attention_sizes {
  dim_t batch, heads, queries, keys, width;
};

/// Head h of row r of batch n begins at data[n * batch + r * row + h * width].
template <class T>
struct attention_operand {
  T* data;
  dim_t row, batch;
  operator attention_operand<const T>() const requires(!std::is_const_v<T>) {
    return {data, row, batch};
  }
};

/// What is added to the scores, and which keys are ignored (true). Null where there is none.
template <class T>
struct attention_masks {
  const bool* ignored_keys = nullptr;  ///< (batch, keys)
  const bool* ignored = nullptr;       ///< (queries, keys), or for each (batch, head)
  const T* added = nullptr;            ///< likewise
  bool for_each_head = false;
  bool causal = false;  ///< Query i ignores the keys from i + 1 on.
};

/// Dropout of the weights; element i of all weights takes word i of the stream. p = 0 for none.
struct attention_dropout {
  double p = 0;
  random_stream stream{};
};

/// The keys of a block, and the queries whose operands are kept packed while all keys pass.
inline constexpr dim_t attention_keys = 64, attention_queries = 128;

/// What a kernel is told of one head; `first` is the index of its first weight among all.
template <class T>
struct attention_head {
  dim_t queries, keys, width;
  T scale;
  const T *q, *k, *v;
  dim_t q_row, k_row, v_row;
  const bool *ignored_keys, *ignored;
  const T* added;
  bool causal;
  attention_dropout dropped;
  std::uint64_t first;
  T* scratch;
};

}  // namespace ikebana::cpu

#define IKEBANA_CPU_BODY "ikebana/cpu/attention/tile-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/attention-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/attention/backward-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// Scaled dot-product attention (Vaswani et al., Attention Is All You Need, 2017) over operands
/// that stand where a projection left them. Softmax is computed online (Milakov and Gimelshein,
/// 2018) while blocks of keys pass blocks of queries, and once more for backward (Dao et al.,
/// FlashAttention, 2022), so that no matrix of queries by keys is ever held. None allocates or
/// throws.
namespace ikebana::cpu {

/// The elements of scratch that both functions want, for any batch and heads: less than 1000 width
/// + 2048, however long the sequences are.
constexpr dim_t attention_scratch(const attention_sizes& n) {
  constexpr dim_t lanes = 32;  // The queries of a block: two vectors of AVX-512.
  const dim_t padded = (n.queries + lanes - 1) / lanes * lanes,
              queries = padded < attention_queries ? padded : attention_queries;
  return (5 * queries + 4 * attention_keys) * n.width + attention_keys * lanes;
}

namespace detail {
template <class T>
attention_head<T> head_of(const attention_sizes& n, dim_t b, dim_t h, attention_operand<const T> q,
                          attention_operand<const T> k, attention_operand<const T> v,
                          const attention_masks<T>& masks, const attention_dropout& dropped,
                          T* scratch) {
  const dim_t index = b * n.heads + h, at = h * n.width, area = n.queries * n.keys;
  const dim_t mask_at = masks.for_each_head ? index * area : 0;
  return {n.queries,
          n.keys,
          n.width,
          T{1} / static_cast<T>(__builtin_sqrt(static_cast<double>(n.width))),
          q.data + b * q.batch + at,
          k.data + b * k.batch + at,
          v.data + b * v.batch + at,
          q.row,
          k.row,
          v.row,
          masks.ignored_keys == nullptr ? nullptr : masks.ignored_keys + b * n.keys,
          masks.ignored == nullptr ? nullptr : masks.ignored + mask_at,
          masks.added == nullptr ? nullptr : masks.added + mask_at,
          masks.causal,
          dropped,
          static_cast<std::uint64_t>(index) * static_cast<std::uint64_t>(area),
          scratch};
}

/// Calls f(kernel, batch, head, scratch) for every head. Where several threads may do so each uses
/// its own scratch memory.
template <class T, class Kernel, class F>
[[gnu::always_inline]] inline void share_heads(const attention_sizes& n, bool on_their_own,
                                               T* scratch, Kernel* kernel, const F& f) {
  const dim_t heads = n.batch * n.heads;
  // Some 16 multiplications take as long as an element of an activation.
  const dim_t work = n.queries * n.keys * (n.width / 8 + 1);
  const dim_t grain =
      heads * work <= elements_for_thread || !on_their_own ||
              static_cast<std::size_t>(attention_scratch(n)) * sizeof(T) > packed_b_bytes
          ? heads
          : rows_for_thread(work);
  parallel_for(0, heads, grain, [=](dim_t begin, dim_t end) {
    T* const mine = end - begin == heads ? scratch : thread_scratch<T>();
    for (dim_t i = begin; i < end; ++i) f(kernel, i / n.heads, i % n.heads, mine);
  });
}
}  // namespace detail

/// out = dropout(softmax(q k^T / sqrt(width) + masks)) v for each batch and head; 0 for a query
/// that ignores every key, or has a score of -infinity for each. `normalizers` (batch, heads, 2,
/// queries), null where no backward follows, becomes the largest score of each query, and then 1 /
/// the sum of exp(score - largest); infinity and 0 for such a query. `scratch`: attention_scratch
/// elements. O(batch heads queries keys width).
template <class T>
void attention_forward(const attention_sizes& n, attention_operand<const T> q,
                       attention_operand<const T> k, attention_operand<const T> v,
                       const attention_masks<T>& masks, const attention_dropout& dropped,
                       attention_operand<T> out, T* normalizers, T* scratch) {
  detail::share_heads(
      n, true, scratch, IKEBANA_CPU_DISPATCH_AVX(attend<T>),
      [=](auto* kernel, dim_t b, dim_t h, T* mine) {
        kernel(detail::head_of<T>(n, b, h, q, k, v, masks, dropped, mine),
               out.data + b * out.batch + h * n.width, out.row,
               normalizers == nullptr ? nullptr : normalizers + (b * n.heads + h) * 2 * n.queries);
      });
}

/// The gradients of attention_forward, from its operands, `out` and `normalizers`. `dq` holds the
/// gradient of `out` and becomes that of q; `dk` and `dv` are overwritten; `dadded`, where given,
/// becomes the gradient of the mask that is added, of its shape.
template <class T>
void attention_backward(const attention_sizes& n, attention_operand<const T> q,
                        attention_operand<const T> k, attention_operand<const T> v,
                        const attention_masks<T>& masks, const attention_dropout& dropped,
                        attention_operand<const T> out, const T* normalizers,
                        attention_operand<T> dq, attention_operand<T> dk, attention_operand<T> dv,
                        T* dadded, T* scratch) {
  const dim_t area = n.queries * n.keys;
  if (dadded != nullptr) fill((masks.for_each_head ? n.batch * n.heads : 1) * area, dadded, T{0});
  // All heads add to the gradient of a mask that they share.
  const bool on_their_own = dadded == nullptr || masks.for_each_head;
  detail::share_heads(
      n, on_their_own, scratch, IKEBANA_CPU_DISPATCH_AVX(attend_backward<T>),
      [=](auto* kernel, dim_t b, dim_t h, T* mine) {
        const dim_t index = b * n.heads + h, at = h * n.width;
        kernel(detail::head_of<T>(n, b, h, q, k, v, masks, dropped, mine),
               out.data + b * out.batch + at, out.row, normalizers + 2 * index * n.queries,
               dq.data + b * dq.batch + at, dq.row, dk.data + b * dk.batch + at, dk.row,
               dv.data + b * dv.batch + at, dv.row,
               dadded == nullptr || !masks.for_each_head ? dadded : dadded + index * area);
      });
}

IKEBANA_CPU_KERNEL(attention_forward, attention_backward)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
