#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/strips.hpp"

namespace ikebana {

/// Concatenates one to eight inputs along a dimension, all other extents being equal: torch.cat.
/// Option: dim<N> (default 0; negative counts from the end). O(elements): it copies, but for values
/// that the network computes, where all extents before that of the dimension are 1: these are made,
/// and their gradients read, in place. No allocation.
template <class... Options>
struct concat {
  static_assert(detail::option_set<dim<0>>::accepts<Options...>,
                "ikebana: concat takes the option dim<N>");

  static constexpr std::string_view kind = "concat";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool takes_all = true;
  static constexpr dim_t along = detail::option_or<dim<0>, Options...>::value;

  constexpr inferred infer(const shape_list& in) const {
    const dim_t rank = static_cast<dim_t>(in[0].rank());
    if (in.size() == 0 || along >= rank || along < -rank)
      return diagnostic{"concat expects dim {number} to be one of the input's (input {input})",
                        rank, along, in[0]};
    const std::size_t d = detail::dimension(along, in[0]);
    shape out = in[0];
    for (std::size_t i = 1; i < in.size(); ++i) {
      if (!compatible(in[0].with(d, dynamic), in[i]))
        return diagnostic{
            "concat expects shapes that are equal but for dim {number}, got "
            "{input} and {other}",
            0, along, in[0], in[i]};
      for (std::size_t k = 0; k < out.rank(); ++k) {
        if (k == d)
          out[k] = out[k] < 0 || in[i][k] < 0 ? dynamic : out[k] + in[i][k];
        else if (out[k] < 0)
          out[k] = in[i][k];
      }
    }
    return out;
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  constexpr dim_t joins_along() const { return along; }

  void describe(description& d) const { d.add("dim", std::to_string(along)); }

  template <class T>
  void forward(const context<T>& c) const {
    const std::size_t d = detail::dimension(along, c.output_shape());
    dim_t at = 0;
    for (std::size_t i = 0; i < c.input_count(); ++i) {
      detail::copy_strips<T>(c.input_shape(i), d, c.input(i), 0, c.input_shape(i), c.output(), at,
                             c.output_shape());
      at += c.input_shape(i)[d];
    }
  }

  template <class T>
  void backward(const context<T>& c) const {
    const std::size_t d = detail::dimension(along, c.output_shape());
    dim_t at = 0;
    for (std::size_t i = 0; i < c.input_count(); ++i) {
      if (c.input_gradient(i) != nullptr)
        detail::copy_strips<T>(c.input_shape(i), d, c.output_gradient(), at, c.output_shape(),
                               c.input_gradient(i), 0, c.input_shape(i));
      at += c.input_shape(i)[d];
    }
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace ikebana
