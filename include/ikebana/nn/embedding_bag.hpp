#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/gradient_rows.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/row_norm.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/mode.hpp"

namespace ikebana {

namespace detail {
struct offsets_option;
struct per_sample_weights_option;
}  // namespace detail

/// Whether the bags of an embedding_bag are parts of one list of indices, which begin at offsets.
template <bool B>
struct offsets {
  using option = detail::offsets_option;
  static constexpr bool value = B;
};

/// Whether each index of an embedding_bag has a weight.
template <bool B>
struct per_sample_weights {
  using option = detail::per_sample_weights_option;
  static constexpr bool value = B;
};

/// The mean, sum or maximum of the rows of a table that each bag of indices selects: std::int64_t
/// indices [N, L] -> [N, embedding_dim], without the [N, L, embedding_dim] of embedding. Bags may
/// have different numbers of indices if the rest are padding_idx, which counts nowhere; a bag of
/// nothing else gives 0. Throws error, before anything runs, for an index that is negative or not
/// below num_embeddings.
///
/// With offsets<true>, the indices are a list [n] and a second input, std::int64_t [N], is where
/// each bag begins; it ends where the next one does. Throws error unless the first offset is 0 and
/// none is below the one before or above n. With per_sample_weights<true>, for mode<"sum">, the
/// last input has a weight for each index, by which its row is multiplied; it has a gradient, 0
/// for padding_idx.
///
/// Parameter: weight (num_embeddings, embedding_dim). Options: mode<"mean"> (default), <"sum"> or
/// <"max">; padding_idx<N> (none; negative counts from the end); scale_grad_by_freq<bool> (false,
/// not with mode<"max">; EmbeddingBag of PyTorch 1.13 divides by a wrong index's frequency),
/// sparse<bool> (false), and the members max_norm and norm_type, see embedding; offsets<bool>,
/// per_sample_weights<bool> (false). O(N L embedding_dim); backward O(num_embeddings embedding_dim)
/// more, unless sparse. No allocation.
template <dim_t Num, dim_t Dim, class... Options>
struct embedding_bag {
  static_assert(
      detail::option_set<mode<"mean">, padding_idx<0>, scale_grad_by_freq<false>, sparse<false>,
                         offsets<false>, per_sample_weights<false>>::template accepts<Options...>,
      "ikebana: embedding_bag takes the options mode, padding_idx, scale_grad_by_freq, "
      "sparse, offsets and per_sample_weights, each once");
  static_assert(Num >= 0 && Dim >= 0,
                "ikebana: embedding_bag needs num_embeddings and embedding_dim, numbers");

  static constexpr std::string_view kind = "embedding_bag";
  static constexpr kept keeps = kept::input;
  static constexpr std::string_view how = detail::option_or<mode<"mean">, Options...>::value;
  static_assert(how == "mean" || how == "sum" || how == "max",
                "ikebana: embedding_bag takes mode<\"mean\">, <\"sum\"> or <\"max\">");
  static constexpr bool takes_maximum = how == "max";
  static constexpr bool by_frequency =
      detail::option_or<scale_grad_by_freq<false>, Options...>::value;
  static_assert(!by_frequency || !takes_maximum,
                "ikebana: scale_grad_by_freq of embedding_bag is not for mode<\"max\">");
  static constexpr bool has_offsets = detail::option_or<offsets<false>, Options...>::value;
  static constexpr bool is_weighted =
      detail::option_or<per_sample_weights<false>, Options...>::value;
  static_assert(!is_weighted || how == "sum",
                "ikebana: per_sample_weights of embedding_bag are for mode<\"sum\">");
  static constexpr std::size_t input_count =
      1 + std::size_t{has_offsets} + std::size_t{is_weighted};
  static constexpr std::size_t weights_at = input_count - 1;
  static constexpr bool has_padding =
      detail::times_given<detail::padding_idx_option, Options...> > 0;
  static constexpr dim_t given_padding = detail::option_or<padding_idx<0>, Options...>::value;
  static_assert(!has_padding || (given_padding >= -Num && given_padding < Num),
                "ikebana: padding_idx is within num_embeddings");
  static constexpr bool is_sparse = detail::option_or<sparse<false>, Options...>::value;
  static_assert(!is_sparse || Num <= detail::most_listed_rows,
                "ikebana: sparse<true> takes at most 2^30 embeddings");
  /// -1 if there is none.
  static constexpr dim_t padding = !has_padding        ? -1
                                   : given_padding < 0 ? given_padding + Num
                                                       : given_padding;

  /// The greatest norm of a row that is looked up; none by default.
  std::optional<double> max_norm = std::nullopt;
  double norm_type = 2;

  static constexpr element_kind input_kind(std::size_t i, std::size_t) {
    return is_weighted && i == weights_at ? element_kind::real : element_kind::index;
  }

  constexpr inferred infer(const shape_list& all) const {
    const shape& in = all[0];
    if (all.size() != input_count)
      return diagnostic{"embedding_bag expects {expected} inputs, got {got} (input {input})",
                        static_cast<dim_t>(input_count), static_cast<dim_t>(all.size()), in};
    constexpr dim_t rank = has_offsets ? 1 : 2;
    if (in.rank() != std::size_t{rank})
      return diagnostic{
          "embedding_bag expects indices of {expected} dimensions, got {got} (input {input})", rank,
          static_cast<dim_t>(in.rank()), in};
    if constexpr (has_offsets)
      if (all[1].rank() != 1)
        return diagnostic{
            "embedding_bag expects offsets of {expected} dimensions, got {got} (input {input})", 1,
            static_cast<dim_t>(all[1].rank()), all[1]};
    if constexpr (is_weighted)
      if (!compatible(in, all[weights_at]))
        return diagnostic{"embedding_bag expects a weight for each index, {input}, got {other}", 0,
                          0, in, all[weights_at]};
    return shape_list{shape{has_offsets ? all[1][0] : in[0], Dim}};
  }

  constexpr std::array<parameter_spec, 1> parameters() const {
    return {parameter_spec{"weight", shape{Num, Dim},
                           initializer::normal(0, 1).with_zero_row(padding), "", 1,
                           is_sparse ? 0 : -1}};
  }
  constexpr std::array<buffer_spec, 1> buffers() const requires(is_sparse) {
    return {detail::row_list_spec(Num)};
  }

  /// The row of each maximum, or -1; or how often each index occurs.
  constexpr std::array<saved_spec, 1> saved(const shape_list& in) const
      requires(takes_maximum || by_frequency) {
    if (by_frequency) return {saved_spec{sizeof(std::int32_t), shape{Num}}};
    return {saved_spec{sizeof(std::int64_t), shape{in[has_offsets ? 1 : 0][0], Dim}}};
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const {
    d.add("num_embeddings", Num).add("embedding_dim", Dim).add("mode", how);
    if (has_padding) d.add("padding_idx", padding);
    if (max_norm) d.add("max_norm", *max_norm).add("norm_type", norm_type);
    if (by_frequency) d.add("scale_grad_by_freq", true);
    if (is_sparse) d.add("sparse", true);
    if (has_offsets) d.add("offsets", true);
    if (is_weighted) d.add("per_sample_weights", true);
  }

  template <class T>
  void validate(const context<T>& c) const {
    const std::int64_t* const index = c.template input<std::int64_t>();
    const dim_t n = c.input_shape().numel();
    for (dim_t i = 0; i < n; ++i)
      if (index[i] < 0 || index[i] >= Num) detail::refuse_index(Num, index[i]);
    if constexpr (has_offsets) {
      const std::int64_t* const begin = c.template input<std::int64_t>(1);
      for (dim_t b = 0; b < c.input_shape(1)[0]; ++b)
        if (begin[b] < (b == 0 ? 0 : begin[b - 1]) || begin[b] > (b == 0 ? 0 : n))
          throw_error(error(
              "embedding_bag expects offsets from 0, that do not fall or exceed the number of "
              "indices"));
    }
  }

  template <class T>
  void forward(const context<T>& c) const {
    const T* const weight = c.parameter(0);
    T* y = c.output();
    if (max_norm && c.training()) {
      const std::int64_t* const all = c.template input<std::int64_t>();
      detail::renormalize_rows<T>(c.input_shape().numel(), all, Dim, *max_norm, norm_type,
                                  c.parameters[0]);
    }
    for_each_bag(c, [&](dim_t b, const std::int64_t* index, dim_t length, dim_t at) {
      cpu::fill<T>(Dim, y, T(0));
      if constexpr (takes_maximum) {
        std::int64_t* const from = c.template saved<std::int64_t>(0) + b * Dim;
        for (dim_t k = 0; k < Dim; ++k) from[k] = -1;
        for (dim_t i = 0; i < length; ++i) {
          if (index[i] == padding) continue;
          const T* const row = weight + index[i] * Dim;
          const T scale = row_scale(c, row);
          for (dim_t k = 0; k < Dim; ++k)
            if (from[k] < 0 || scale * row[k] > y[k]) {
              y[k] = scale * row[k];
              from[k] = index[i];
            }
        }
      } else {
        for (dim_t i = 0; i < length; ++i) {
          if (index[i] == padding) continue;
          const T* const row = weight + index[i] * Dim;
          cpu::axpy<T>(Dim, factor(c, row_scale(c, row), at + i), row, y);
        }
        if (const T share = share_of<T>(index, length); share != T(1)) cpu::scale<T>(Dim, share, y);
      }
      y += Dim;
    });
  }

  template <class T>
  void backward(const context<T>& c) const {
    const T* dy = c.output_gradient();
    T* const dw = c.parameter_gradient(0);
    const dim_t n = c.input_shape().numel();
    if constexpr (is_sparse) {
      const std::int64_t* const all = c.template input<std::int64_t>();
      detail::row_list<T> rows(c.template buffer<std::int32_t>(0), Num, Dim, dw);
      if (!c.accumulate()) rows.clear();
      for (dim_t i = 0; i < n; ++i)
        if (all[i] != padding) rows.add(all[i]);
    } else {
      if (!c.accumulate()) cpu::fill<T>(Num * Dim, dw, T(0));
    }
    [[maybe_unused]] std::int32_t* frequency = nullptr;
    if constexpr (by_frequency) {
      frequency = c.template saved<std::int32_t>(0);
      const std::int64_t* const all = c.template input<std::int64_t>();
      for (dim_t i = 0; i < n; ++i) frequency[all[i]] = 0;
      for (dim_t i = 0; i < n; ++i) ++frequency[all[i]];
    }
    T* of_weights = nullptr;
    if constexpr (is_weighted) {
      of_weights = c.input_gradient(weights_at);
      if (of_weights != nullptr) cpu::fill<T>(n, of_weights, T(0));
    }
    for_each_bag(c, [&](dim_t b, const std::int64_t* index, dim_t length, dim_t at) {
      if constexpr (takes_maximum) {
        const std::int64_t* const from = c.template saved<std::int64_t>(0) + b * Dim;
        for (dim_t k = 0; k < Dim; ++k)
          if (from[k] >= 0) dw[from[k] * Dim + k] += dy[k];
      } else {
        const T share = share_of<T>(index, length);
        for (dim_t i = 0; i < length; ++i) {
          if (index[i] == padding) continue;
          const T* const row = c.parameter(0) + index[i] * Dim;
          T each = factor(c, share, at + i);
          if constexpr (by_frequency) each /= static_cast<T>(frequency[index[i]]);
          cpu::axpy<T>(Dim, each, dy, dw + index[i] * Dim);
          if (of_weights != nullptr) {
            const T scale = row_scale(c, row);
            for (dim_t k = 0; k < Dim; ++k) of_weights[at + i] += dy[k] * (scale * row[k]);
          }
        }
      }
      dy += Dim;
    });
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  /// Calls f(bag, its indices, their number, the place of the first) for each bag.
  template <class T, class F>
  static void for_each_bag(const context<T>& c, const F& f) {
    const std::int64_t* const index = c.template input<std::int64_t>();
    if constexpr (has_offsets) {
      const std::int64_t* const begin = c.template input<std::int64_t>(1);
      const dim_t bags = c.input_shape(1)[0];
      for (dim_t b = 0; b < bags; ++b) {
        const auto first = static_cast<dim_t>(begin[b]),
                   end = b + 1 < bags ? static_cast<dim_t>(begin[b + 1]) : c.input_shape()[0];
        f(b, index + first, end - first, first);
      }
    } else {
      const dim_t bags = c.input_shape()[0], length = c.input_shape()[1];
      for (dim_t b = 0; b < bags; ++b) f(b, index + b * length, length, b * length);
    }
  }
  /// What a row is multiplied by to be within max_norm. Training has scaled the row itself.
  template <class T>
  T row_scale(const context<T>& c, const T* row) const {
    return !max_norm || c.training() ? T(1)
                                     : detail::factor_to_norm(Dim, row, *max_norm, norm_type);
  }
  /// What an index counts, with its weight.
  template <class T>
  static T factor([[maybe_unused]] const context<T>& c, T share, [[maybe_unused]] dim_t at) {
    if constexpr (is_weighted)
      return share * c.input(weights_at)[at];
    else
      return share;
  }
  /// What each index of a bag counts.
  template <class T>
  static T share_of(const std::int64_t* index, dim_t length) {
    if (how != "mean") return T(1);
    dim_t counted = 0;
    for (dim_t i = 0; i < length; ++i) counted += index[i] != padding;
    return T(1) / static_cast<T>(counted < 1 ? 1 : counted);
  }
};

}  // namespace ikebana
