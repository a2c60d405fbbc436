#pragma once

#include <array>
#include <cstddef>
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

/// Splits one input along a dimension into outputs of the sizes Sections<..>: torch.split with a
/// list. One size may be `lazy`: it takes the rest. Options: sections<..> (required, two to eight),
/// dim<N> (default 0; negative counts from the end). O(elements): it copies. No allocation. In a
/// graph: `const auto [a, b] = split<sections<3, lazy>, dim<-1>>{}(x)`.
template <class... Options>
struct split {
  static_assert(detail::option_set<sections<>, dim<0>>::template accepts<Options...>,
                "ikebana: split takes the options sections<..> and dim<N>, each once");

  static constexpr std::string_view kind = "split";
  static constexpr kept keeps = kept::nothing;
  static constexpr auto sizes = detail::option_or<sections<>, Options...>::values;
  static constexpr dim_t along = detail::option_or<dim<0>, Options...>::value;
  static constexpr std::size_t outputs = sizes.size();
  static constexpr bool first_output_is_result = false;
  static_assert(outputs >= 2 && outputs <= max_arity,
                "ikebana: split needs the option sections<..> with two to eight sizes");
  static_assert(
      [] {
        std::size_t open = 0;
        for (dim_t s : sizes) {
          if (s < 0 && s != lazy) return false;
          open += s == lazy;
        }
        return open <= 1;
      }(),
      "ikebana: the sections of split are sizes, one of which may be lazy");

  constexpr inferred infer(const shape& in) const {
    const dim_t rank = static_cast<dim_t>(in.rank());
    if (along >= rank || along < -rank)
      return diagnostic{"split expects dim {number} to be one of the input's (input {input})", rank,
                        along, in};
    const std::size_t d = detail::dimension(along, in);
    if (in[d] >= 0 && (has_rest ? written > in[d] : written != in[d]))
      return diagnostic{
          "split expects sections that sum to {got}, theirs is {expected} (input "
          "{input})",
          written, in[d], in};
    shape_list out;
    for (dim_t s : sizes)
      out.push_back(in.with(d, s != lazy ? s : in[d] < 0 ? dynamic : in[d] - written));
    return out;
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const {
    d.add("sections", sizes).add("dim", std::to_string(along));
  }

  template <class T>
  void forward(const context<T>& c) const {
    const std::size_t d = detail::dimension(along, c.input_shape());
    dim_t at = 0;
    for (std::size_t i = 0; i < outputs; ++i) {
      detail::copy_strips<T>(c.output_shape(i), d, c.input(), at, c.input_shape(), c.output(i), 0,
                             c.output_shape(i));
      at += c.output_shape(i)[d];
    }
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() == nullptr) return;
    const std::size_t d = detail::dimension(along, c.input_shape());
    dim_t at = 0;
    for (std::size_t i = 0; i < outputs; ++i) {
      detail::copy_strips<T>(c.output_shape(i), d, c.output_gradient(i), 0, c.output_shape(i),
                             c.input_gradient(), at, c.input_shape());
      at += c.output_shape(i)[d];
    }
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static constexpr bool has_rest = [] {
    for (dim_t s : sizes)
      if (s == lazy) return true;
    return false;
  }();
  static constexpr dim_t written = [] {
    dim_t sum = 0;
    for (dim_t s : sizes) sum += s == lazy ? 0 : s;
    return sum;
  }();
};

}  // namespace ikebana
