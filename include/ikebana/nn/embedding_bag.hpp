#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/mode.hpp"

namespace ikebana {

/// The mean, sum or maximum of the rows of a table that each bag of indices selects: std::int64_t
/// indices [N, L] -> [N, embedding_dim], without the [N, L, embedding_dim] of embedding. Bags may
/// have different numbers of indices if the rest are padding_idx, which counts nowhere; a bag of
/// nothing else gives 0. Throws error, before anything runs, for an index that is negative or not
/// below num_embeddings.
///
/// Parameter: weight (num_embeddings, embedding_dim). Options: mode<"mean"> (default), <"sum"> or
/// <"max">; padding_idx<N> (none; negative counts from the end); sparse<bool> (false), see
/// embedding. O(N L embedding_dim); backward O(num_embeddings embedding_dim) more, unless sparse.
/// No allocation.
template <dim_t Num, dim_t Dim, class... Options>
struct embedding_bag {
  static_assert(
      detail::option_set<mode<"mean">, padding_idx<0>, sparse<false>>::template accepts<Options...>,
      "ikebana: embedding_bag takes the options mode, padding_idx and sparse, each once");
  static_assert(Num >= 0 && Dim >= 0,
                "ikebana: embedding_bag needs num_embeddings and embedding_dim, numbers");

  static constexpr std::string_view kind = "embedding_bag";
  static constexpr kept keeps = kept::input;
  static constexpr std::string_view how = detail::option_or<mode<"mean">, Options...>::value;
  static_assert(how == "mean" || how == "sum" || how == "max",
                "ikebana: embedding_bag takes mode<\"mean\">, <\"sum\"> or <\"max\">");
  static constexpr bool takes_maximum = how == "max";
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

  static constexpr element_kind input_kind(std::size_t, std::size_t) { return element_kind::index; }

  constexpr inferred infer(const shape& in) const {
    if (in.rank() != 2)
      return diagnostic{
          "embedding_bag expects indices of {expected} dimensions, got {got} (input {input})", 2,
          static_cast<dim_t>(in.rank()), in};
    return shape{in[0], Dim};
  }

  constexpr std::array<parameter_spec, 1> parameters() const {
    return {parameter_spec{"weight", shape{Num, Dim},
                           initializer::normal(0, 1).with_zero_row(padding), "", 1,
                           is_sparse ? 0 : -1}};
  }
  constexpr std::array<buffer_spec, 1> buffers() const requires(is_sparse) {
    return {detail::row_list_spec(Num)};
  }

  /// The row of each maximum, or -1.
  constexpr std::array<saved_spec, 1> saved(const shape_list& in) const requires(takes_maximum) {
    return {saved_spec{sizeof(std::int64_t), shape{in[0][0], Dim}}};
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const {
    d.add("num_embeddings", Num).add("embedding_dim", Dim).add("mode", how);
    if (has_padding) d.add("padding_idx", padding);
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
    const dim_t bags = c.input_shape()[0], length = c.input_shape()[1];
    const std::int64_t* index = c.template input<std::int64_t>();
    const T* const weight = c.parameter(0);
    T* y = c.output();
    for (dim_t b = 0; b < bags; ++b, index += length, y += Dim) {
      cpu::fill<T>(Dim, y, T(0));
      if constexpr (takes_maximum) {
        std::int64_t* const from = c.template saved<std::int64_t>(0) + b * Dim;
        for (dim_t k = 0; k < Dim; ++k) from[k] = -1;
        for (dim_t i = 0; i < length; ++i) {
          if (index[i] == padding) continue;
          const T* const row = weight + index[i] * Dim;
          for (dim_t k = 0; k < Dim; ++k)
            if (from[k] < 0 || row[k] > y[k]) {
              y[k] = row[k];
              from[k] = index[i];
            }
        }
      } else {
        for (dim_t i = 0; i < length; ++i)
          if (index[i] != padding) cpu::axpy<T>(Dim, T(1), weight + index[i] * Dim, y);
        if (const T share = share_of<T>(index, length); share != T(1)) cpu::scale<T>(Dim, share, y);
      }
    }
  }

  template <class T>
  void backward(const context<T>& c) const {
    const dim_t bags = c.input_shape()[0], length = c.input_shape()[1];
    const std::int64_t* index = c.template input<std::int64_t>();
    const T* dy = c.output_gradient();
    T* const dw = c.parameter_gradient(0);
    if constexpr (is_sparse) {
      detail::row_list<T> rows(c.template buffer<std::int32_t>(0), Num, Dim, dw);
      if (!c.accumulate()) rows.clear();
      for (dim_t i = 0; i < bags * length; ++i)
        if (index[i] != padding) rows.add(index[i]);
    } else {
      if (!c.accumulate()) cpu::fill<T>(Num * Dim, dw, T(0));
    }
    for (dim_t b = 0; b < bags; ++b, index += length, dy += Dim) {
      if constexpr (takes_maximum) {
        const std::int64_t* const from = c.template saved<std::int64_t>(0) + b * Dim;
        for (dim_t k = 0; k < Dim; ++k)
          if (from[k] >= 0) dw[from[k] * Dim + k] += dy[k];
      } else {
        const T share = share_of<T>(index, length);
        for (dim_t i = 0; i < length; ++i)
          if (index[i] != padding) cpu::axpy<T>(Dim, share, dy, dw + index[i] * Dim);
      }
    }
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
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
