#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/attention.hpp"
#include "ikebana/cpu/attention/weights.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/nn/detail/attention_inputs.hpp"
#include "ikebana/nn/detail/product.hpp"

namespace ikebana::detail {

/// One call of multihead_attention. saved(i) holds: 0 to 2 the projections of query, key and value,
/// side by side in 0 for a single input; 3 the maximum and the sum of each row, or with
/// need_weights the attention weights; 4 the heads' outputs; 5 to 7 the gradients of 0 to 2; 8
/// scratch. With AddsKeys (the layout's more_keys() > 0), 9 and 10 hold all keys and values,
/// (batch, keys, embed_dim), 11 and 12 their gradients, 13 and 14 the masks of all keys, and 15 the
/// gradient of the mask that is added. NeedsWeights equals the layout's need_weights.
template <bool NeedsWeights, bool AddsKeys, class Context>
class attention_run {
  using T = typename Context::value_type;

 public:
  attention_run(const attention_layout& l, const Context& c, double dropout)
      : l_{l},
        c_{c},
        n_(l, l.numbers(c.input_count()), c.input_shape(0),
           c.input_shape(l.numbers(c.input_count()) == 3 ? 1 : 0)),
        embed_{c.input_shape().back()},
        query_rows_{n_.batch * n_.queries},
        key_rows_{n_.batch * n_.keys},
        keys_{n_.keys + (AddsKeys ? l.more_keys() : 0)},
        ld_{n_.self ? 3 * embed_ : embed_},
        products_{l.packed && n_.self ? std::size_t{1} : std::size_t{3}},
        dropout_{c.training() ? dropout : 0, c.random()} {}

  void forward() const {
    project_inputs();
    if constexpr (AddsKeys) add_keys();
    T* heads = c_.template saved<T>(4);
    const cpu::attention_operand<T> out = operand(heads, embed_, n_.queries);
    if constexpr (NeedsWeights)
      cpu::attention_weights_forward<T>(sizes(), part(0, 0), keys(0), values(0), masks(), dropout_,
                                        weights(), out, c_.output(1), l_.averaged, scratch());
    else
      cpu::attention_forward<T>(sizes(), part(0, 0), keys(0), values(0), masks(), dropout_, out,
                                weights(), scratch());
    project_heads(heads);
  }

  void backward() const {
    const T* dy = c_.output_gradient();
    const T beta = c_.accumulate() ? T{1} : T{0};
    product(c_, yes, no, embed_, embed_, query_rows_, dy, embed_, c_.template saved<T>(4), embed_,
            beta, c_.parameter_gradient(l_.out_weight()), embed_);
    if (l_.bias)
      cpu::column_sums<T>(query_rows_, embed_, dy, embed_, c_.parameter_gradient(l_.out_bias()),
                          c_.accumulate());
    const cpu::attention_operand<T> dq = part(5, 0);
    product(c_, no, no, query_rows_, embed_, embed_, dy, embed_, c_.parameter(l_.out_weight()),
            embed_, T{0}, dq.data, ld_);
    T* dadded = l_.additive ? c_.input_gradient(last()) : nullptr;
    if (AddsKeys && dadded != nullptr) dadded = c_.template saved<T>(15);
    if constexpr (NeedsWeights)
      cpu::attention_weights_backward<T>(sizes(), part(0, 0), keys(0), values(0), dropout_,
                                         weights(), c_.output_gradient(1), l_.averaged, dq, keys(5),
                                         values(5), dadded, mask_for_each_head(), scratch());
    else
      cpu::attention_backward<T>(sizes(), part(0, 0), keys(0), values(0), masks(), dropout_,
                                 operand(c_.template saved<T>(4), embed_, n_.queries), weights(),
                                 dq, keys(5), values(5), dadded, scratch());
    if constexpr (AddsKeys) take_keys();
    for (std::size_t i = 0; i < products_; ++i) {
      const projected p = projection(i);
      const T* dp = place(5, i);
      product(c_, yes, no, p.columns, p.features, p.rows, dp, ld_, p.x, p.features, beta,
              c_.parameter_gradient(p.parameter) + p.weight_at, p.features);
      if (l_.bias)
        cpu::column_sums<T>(p.rows, p.columns, dp, ld_,
                            c_.parameter_gradient(l_.in_bias()) + p.bias_at, c_.accumulate());
      if (T* dx = c_.input_gradient(p.input); dx != nullptr)
        product(c_, no, no, p.rows, p.features, p.columns, dp, ld_, p.weight, p.features,
                i > 0 && n_.self ? T{1} : T{0}, dx, p.features);
    }
  }

 private:
  // Apart, since the stack of their calls does not add to that of attention then.
  [[gnu::noinline]] void project_inputs() const {
    for (std::size_t i = 0; i < products_; ++i) {
      const projected p = projection(i);
      product(c_, no, yes, p.rows, p.columns, p.features, p.x, p.features, p.weight, p.features,
              T{0}, place(0, i), ld_, l_.bias ? c_.parameter(l_.in_bias()) + p.bias_at : nullptr);
    }
  }
  [[gnu::noinline]] void project_heads(const T* heads) const {
    product(c_, no, yes, query_rows_, embed_, embed_, heads, embed_, c_.parameter(l_.out_weight()),
            embed_, T{0}, c_.output(), embed_, l_.bias ? c_.parameter(l_.out_bias()) : nullptr);
  }

  static constexpr cpu::transpose no = cpu::transpose::no, yes = cpu::transpose::yes;

  /// One product x W^T: the projection of query, key or value, or of all three.
  struct projected {
    std::size_t input, parameter;
    dim_t rows, columns, features, weight_at, bias_at;
    const T *x, *weight;
  };
  projected projection(std::size_t i) const {
    const std::size_t input = n_.self ? 0 : i, parameter = l_.packed ? 0 : i;
    const dim_t bias_at = static_cast<dim_t>(i) * embed_;
    const dim_t weight_at = l_.packed ? bias_at * embed_ : 0;
    return {input,
            parameter,
            i == 0 ? query_rows_ : key_rows_,
            products_ == 1 ? 3 * embed_ : embed_,
            c_.input_shape(input).back(),
            weight_at,
            bias_at,
            c_.input(input),
            c_.parameter(parameter) + weight_at};
  }

  /// Projection i among those that start at saved(first), or its gradient.
  T* place(std::size_t first, std::size_t i) const {
    return n_.self ? c_.template saved<T>(first) + static_cast<dim_t>(i) * embed_
                   : c_.template saved<T>(first + i);
  }
  cpu::attention_operand<T> part(std::size_t first, std::size_t i) const {
    return operand(place(first, i), ld_, i == 0 ? n_.queries : n_.keys);
  }
  /// Sequences of this length, in rows of `row` elements.
  cpu::attention_operand<T> operand(T* data, dim_t row, dim_t length) const {
    if (n_.batched && !l_.batch_first) return {data, n_.batch * row, row};
    return {data, row, length * row};
  }
  /// All keys or values, or (first: 5) their gradients.
  cpu::attention_operand<T> keys(std::size_t first) const { return key_operand(first, 1); }
  cpu::attention_operand<T> values(std::size_t first) const { return key_operand(first, 2); }
  cpu::attention_operand<T> key_operand(std::size_t first, std::size_t i) const {
    if constexpr (AddsKeys)
      return {c_.template saved<T>((first == 0 ? 8 : 10) + i), embed_, keys_ * embed_};
    else
      return part(first, i);
  }

  /// Copies keys, values and masks to where there is room for those that are added.
  void add_keys() const {
    for (std::size_t i = 1; i <= 2; ++i) {
      const cpu::attention_operand<T> from = part(0, i), to = key_operand(0, i);
      for (dim_t b = 0; b < n_.batch; ++b) {
        T* row = to.data + b * to.batch;
        for (dim_t s = 0; s < n_.keys; ++s, row += embed_)
          std::copy_n(from.data + b * from.batch + s * from.row, embed_, row);
        if (l_.bias_kv) row = std::copy_n(c_.parameter(l_.key_bias() + i - 1), embed_, row);
        if (l_.zero_attn) std::fill_n(row, embed_, T{0});
      }
    }
    if (l_.padding)
      widen(n_.batch, c_.template input<bool>(n_.inputs), c_.template saved<bool>(13), false,
            false);
    if (l_.additive)
      widen(mask_rows(), c_.input(last()), c_.template saved<T>(14),
            -std::numeric_limits<T>::infinity(), l_.causal);
    else if (l_.mask || l_.causal)
      widen(mask_rows(), l_.mask ? c_.template input<bool>(last()) : nullptr,
            c_.template saved<bool>(14), true, l_.causal);
  }
  /// Copies rows of a mask, with 0 for the keys that are added; `later` for those that a causal
  /// query ignores, which the kernels do not know from those that are added.
  template <class M>
  void widen(dim_t rows, const M* from, M* to, M later, bool causal) const {
    for (dim_t r = 0; r < rows; ++r, to += keys_) {
      std::fill_n(to, keys_, M{});
      if (from != nullptr) std::copy_n(from + r * n_.keys, n_.keys, to);
      const dim_t first = r % (n_.queries == 0 ? 1 : n_.queries) + 1;
      if (causal && first < n_.keys) std::fill(to + first, to + n_.keys, later);
    }
  }
  dim_t mask_rows() const {
    return mask_for_each_head() ? n_.batch * l_.heads * n_.queries : n_.queries;
  }
  /// The gradients of what add_keys has copied.
  void take_keys() const {
    for (std::size_t i = 1; i <= 2; ++i) {
      const cpu::attention_operand<T> from = key_operand(5, i), to = part(5, i);
      T* const dbias = l_.bias_kv ? c_.parameter_gradient(l_.key_bias() + i - 1) : nullptr;
      if (dbias != nullptr && !c_.accumulate()) std::fill_n(dbias, embed_, T{0});
      for (dim_t b = 0; b < n_.batch; ++b) {
        const T* row = from.data + b * from.batch;
        for (dim_t s = 0; s < n_.keys; ++s, row += embed_)
          std::copy_n(row, embed_, to.data + b * to.batch + s * to.row);
        if (dbias != nullptr)
          for (dim_t e = 0; e < embed_; ++e) dbias[e] += row[e];
      }
    }
    if (T* const dadded = l_.additive ? c_.input_gradient(last()) : nullptr; dadded != nullptr)
      for (dim_t r = 0; r < mask_rows(); ++r)
        std::copy_n(c_.template saved<T>(15) + r * keys_, n_.keys, dadded + r * n_.keys);
  }

  T* weights() const { return c_.template saved<T>(3); }
  T* scratch() const { return c_.template saved<T>(8); }

  cpu::attention_sizes sizes() const {
    return {n_.batch, l_.heads, n_.queries, keys_, embed_ / l_.heads};
  }
  std::size_t last() const { return c_.input_count() - 1; }
  bool mask_for_each_head() const { return l_.mask && c_.input_shape(last()).rank() == 3; }
  cpu::attention_masks<T> masks() const {
    cpu::attention_masks<T> m;
    m.causal = l_.causal;
    m.for_each_head = mask_for_each_head();
    if constexpr (AddsKeys) {
      if (l_.padding) m.ignored_keys = c_.template saved<bool>(13);
      if (l_.additive)
        m.added = c_.template saved<T>(14);
      else if (l_.mask || l_.causal)
        m.ignored = c_.template saved<bool>(14);
      m.causal = false;
      return m;
    }
    if (l_.padding) m.ignored_keys = c_.template input<bool>(n_.inputs);
    if (l_.additive)
      m.added = c_.input(last());
    else if (l_.mask)
      m.ignored = c_.template input<bool>(last());
    return m;
  }

  const attention_layout& l_;
  const Context& c_;
  attention_extents n_;
  dim_t embed_, query_rows_, key_rows_;
  dim_t keys_;            ///< With those that are added.
  dim_t ld_;              ///< Leading dimension of a projection.
  std::size_t products_;  ///< Number of matrix products that compute the projections.
  cpu::attention_dropout dropout_;
};

}  // namespace ikebana::detail
