#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ikebana/core/error.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/embedding.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/gradient_rows.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/row_norm.hpp"

namespace ikebana {

namespace detail {

[[noreturn]] inline void refuse_index(dim_t below, std::int64_t index) {
  throw_error(error(index < 0
                        ? "embedding expects indices of at least 0, got " + std::to_string(index)
                        : "embedding expects indices below " + std::to_string(below) + ", got " +
                              std::to_string(index)));
}

}  // namespace detail

/// Looks up rows of a table: std::int64_t indices of any shape [...] -> [..., embedding_dim].
/// Throws error, before anything runs, if an index is negative or not below num_embeddings.
///
/// Parameter: weight (num_embeddings, embedding_dim). Row padding_idx is initialised to zeros and
/// gets no gradient. With scale_grad_by_freq<true>, a row's gradient is divided by how often its
/// index occurs in the input. Options: padding_idx<N> (none; negative counts from the end),
/// scale_grad_by_freq<bool> (false), sparse<bool> (false).
///
/// With max_norm, `embedding<1000, 16>{.max_norm = 1.0}`, the rows that a forward selects are
/// scaled to this norm if theirs is greater; norm_type is the exponent of the norm, above 0 or
/// infinity. As in PyTorch, training scales the parameter itself, and the gradient is that of the
/// scaled row. Evaluation gives the same output and leaves the parameter as it is. `replicate`
/// throws error for a network with a max_norm, as ranks would scale different rows. A row of
/// values made elsewhere, PyTorch's from_pretrained, is assigned: model["weight"_s].
///
/// O(elements of the output); backward takes O(num_embeddings * embedding_dim) more, since the
/// gradient is dense. No allocation.
///
/// With sparse<true>, backward clears and writes the rows alone that the batch selects, and a step
/// reads no others: of sgd without momentum, adagrad, sparse_adam, all without weight decay, with
/// or without max_norm, and of clip_grad_norm. The results are those of a dense gradient. Other
/// optimizers, and a step that updates other rows, take O(num_embeddings * embedding_dim), as does
/// scale_grad_by_freq<true>. Costs 8 bytes per row more. A gradient that the program itself writes
/// to other rows is not seen, nor cleared. Replicas average the rows that any rank has written.
template <dim_t Num, dim_t Dim, class... Options>
struct embedding {
  static_assert(
      detail::option_set<padding_idx<0>, scale_grad_by_freq<false>,
                         sparse<false>>::template accepts<Options...>,
      "ikebana: embedding takes the options padding_idx, scale_grad_by_freq and sparse, each once");
  static_assert(Num >= 0 && Dim >= 0,
                "ikebana: embedding needs num_embeddings and embedding_dim, numbers");

  static constexpr std::string_view kind = "embedding";
  static constexpr bool skips_parameter_gradients = true;
  static constexpr kept keeps = kept::input;
  static constexpr bool has_padding =
      detail::times_given<detail::padding_idx_option, Options...> > 0;
  static constexpr dim_t given_padding = detail::option_or<padding_idx<0>, Options...>::value;
  static_assert(!has_padding || (given_padding >= -Num && given_padding < Num),
                "ikebana: padding_idx is within num_embeddings");
  /// -1 if there is none.
  static constexpr dim_t padding = !has_padding        ? -1
                                   : given_padding < 0 ? given_padding + Num
                                                       : given_padding;
  static constexpr bool by_frequency =
      detail::option_or<scale_grad_by_freq<false>, Options...>::value;
  static constexpr bool is_sparse = detail::option_or<sparse<false>, Options...>::value;
  static_assert(!is_sparse || Num <= detail::most_listed_rows,
                "ikebana: sparse<true> takes at most 2^30 embeddings");

  /// The greatest norm of a row that is looked up; none by default.
  std::optional<double> max_norm = std::nullopt;
  double norm_type = 2;

  static constexpr element_kind input_kind(std::size_t, std::size_t) { return element_kind::index; }

  constexpr inferred infer(const shape& in) const {
    if (in.rank() == shape::max_rank)
      return diagnostic{
          "embedding expects an input of at most {expected} dimensions, got {got} (input {input})",
          shape::max_rank - 1, static_cast<dim_t>(in.rank()), in};
    shape out = in;
    out.push_back(Dim);
    return out;
  }

  constexpr std::array<parameter_spec, 1> parameters() const {
    return {parameter_spec{"weight", shape{Num, Dim},
                           initializer::normal(0, 1).with_zero_row(padding), "", 1,
                           is_sparse ? 0 : -1}};
  }
  constexpr std::array<buffer_spec, 1> buffers() const requires(is_sparse) {
    return {detail::row_list_spec(Num)};
  }

  /// How often each index occurs in the input.
  constexpr std::array<saved_spec, 1> saved(const shape_list&) const requires(by_frequency) {
    return {saved_spec{sizeof(std::int32_t), shape{Num}}};
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const {
    d.add("num_embeddings", Num).add("embedding_dim", Dim);
    if (has_padding) d.add("padding_idx", padding);
    if (max_norm) d.add("max_norm", *max_norm).add("norm_type", norm_type);
    if (by_frequency) d.add("scale_grad_by_freq", true);
    if (is_sparse) d.add("sparse", true);
  }

  template <class T>
  void validate(const context<T>& c) const {
    const std::int64_t* const index = c.template input<std::int64_t>();
    const dim_t n = c.input_shape().numel();
    for (dim_t i = 0; i < n; ++i)
      if (index[i] < 0 || index[i] >= Num) detail::refuse_index(Num, index[i]);
  }

  template <class T>
  void forward(const context<T>& c) const {
    const dim_t n = c.input_shape().numel();
    const std::int64_t* const index = c.template input<std::int64_t>();
    if (max_norm && c.training())
      detail::renormalize_rows<T>(n, index, Dim, *max_norm, norm_type, c.parameters[0]);
    cpu::gather_rows<T>(n, Dim, index, c.parameter(0), c.output());
    if (max_norm && !c.training())
      for (dim_t i = 0; i < n; ++i) {
        T* const y = c.output() + i * Dim;
        const T factor = detail::factor_to_norm(Dim, y, *max_norm, norm_type);
        if (factor != T(1)) cpu::scale<T>(Dim, factor, y);
      }
  }

  /// Scatter-adds in the order of the input. A dense gradient also costs O(num_embeddings *
  /// embedding_dim).
  template <class T>
  void backward(const context<T>& c) const {
    if (c.parameter_gradient(0) == nullptr) return;
    std::int32_t* frequencies = nullptr;
    if constexpr (by_frequency) frequencies = c.template saved<std::int32_t>(0);
    const dim_t n = c.input_shape().numel();
    const std::int64_t* const index = c.template input<std::int64_t>();
    if constexpr (is_sparse) {
      detail::row_list<T> rows(c.template buffer<std::int32_t>(0), Num, Dim,
                               c.parameter_gradient(0));
      if (!c.accumulate()) rows.clear();
      for (dim_t i = 0; i < n; ++i)
        if (index[i] != padding) rows.add(index[i]);
    }
    cpu::scatter_rows<T>(n, Dim, index, c.output_gradient(), Num, padding, frequencies,
                         c.parameter_gradient(0), is_sparse || c.accumulate());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

// Refuses sizes in parentheses.
namespace detail::misuse {
IKEBANA_MISUSE(embedding_takes_sizes_in_angle_brackets,
               "embedding takes its sizes in angle brackets: embedding<1000, 16>{}");
}  // namespace detail::misuse
template <class Misuse>
struct embedding<0, 0, detail::no_module<Misuse>>;
template <bool Lazy = false>
embedding(...)
    -> embedding<0, 0,
                 detail::no_module<detail::misuse::embedding_takes_sizes_in_angle_brackets<Lazy>>>;

}  // namespace ikebana
