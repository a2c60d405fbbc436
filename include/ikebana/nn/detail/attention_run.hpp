#pragma once

#include <cstddef>

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
/// scratch. NeedsWeights equals the layout's need_weights.
template <bool NeedsWeights, class Context>
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
        ld_{n_.self ? 3 * embed_ : embed_},
        products_{l.packed && n_.self ? std::size_t{1} : std::size_t{3}},
        dropout_{c.training() ? dropout : 0, c.random()} {}

  void forward() const {
    for (std::size_t i = 0; i < products_; ++i) {
      const projected p = projection(i);
      product(c_, no, yes, p.rows, p.columns, p.features, p.x, p.features, p.weight, p.features,
              T{0}, place(0, i), ld_, l_.bias ? c_.parameter(l_.in_bias()) + p.bias_at : nullptr);
    }
    T* heads = c_.template saved<T>(4);
    const cpu::attention_operand<T> out = operand(heads, embed_, n_.queries);
    if constexpr (NeedsWeights)
      cpu::attention_weights_forward<T>(sizes(), part(0, 0), part(0, 1), part(0, 2), masks(),
                                        dropout_, weights(), out, c_.output(1), scratch());
    else
      cpu::attention_forward<T>(sizes(), part(0, 0), part(0, 1), part(0, 2), masks(), dropout_, out,
                                weights(), scratch());
    product(c_, no, yes, query_rows_, embed_, embed_, heads, embed_, c_.parameter(l_.out_weight()),
            embed_, T{0}, c_.output(), embed_, l_.bias ? c_.parameter(l_.out_bias()) : nullptr);
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
    T* const dadded = l_.additive ? c_.input_gradient(last()) : nullptr;
    if constexpr (NeedsWeights)
      cpu::attention_weights_backward<T>(sizes(), part(0, 0), part(0, 1), part(0, 2), dropout_,
                                         weights(), c_.output_gradient(1), dq, part(5, 1),
                                         part(5, 2), dadded, mask_for_each_head(), scratch());
    else
      cpu::attention_backward<T>(sizes(), part(0, 0), part(0, 1), part(0, 2), masks(), dropout_,
                                 operand(c_.template saved<T>(4), embed_, n_.queries), weights(),
                                 dq, part(5, 1), part(5, 2), dadded, scratch());
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
  T* weights() const { return c_.template saved<T>(3); }
  T* scratch() const { return c_.template saved<T>(8); }

  cpu::attention_sizes sizes() const {
    return {n_.batch, l_.heads, n_.queries, n_.keys, embed_ / l_.heads};
  }
  std::size_t last() const { return c_.input_count() - 1; }
  bool mask_for_each_head() const { return l_.mask && c_.input_shape(last()).rank() == 3; }
  cpu::attention_masks<T> masks() const {
    cpu::attention_masks<T> m;
    m.causal = l_.causal;
    m.for_each_head = mask_for_each_head();
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
  dim_t ld_;              ///< Leading dimension of a projection.
  std::size_t products_;  ///< Number of matrix products that compute the projections.
  cpu::attention_dropout dropout_;
};

}  // namespace ikebana::detail
