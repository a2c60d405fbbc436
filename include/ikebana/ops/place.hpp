#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ikebana/cpu/strided.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/ops/shapes.hpp"

// Values of a graph as parts of a larger one. O(elements of the result); no allocation.
namespace ikebana {

namespace ops {

/// The input within a border of one number.
struct pad {
  static constexpr std::string_view kind = "pad";
  static constexpr kept keeps = kept::nothing;

  number_list sides{};  ///< Two for each dimension, the last first, as in PyTorch.
  double value = 0;

  constexpr bool operator==(const pad&) const = default;

  constexpr inferred infer(const shape& in) const {
    if (sides.size() / 2 > in.rank())
      return diagnostic{"pad expects at least {expected} dimensions, got {input}",
                        static_cast<dim_t>(sides.size() / 2), 0, in};
    shape out = in;
    for (std::size_t d = 0; d < in.rank(); ++d)
      if (in[d] >= 0) out[d] = in[d] + side(d, 0, in) + side(d, 1, in);
    return out;
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  void describe(description& d) const {
    describe_numbers(d, "padding", sides);
    d.add("value", value);
  }

  template <class T>
  void forward(const context<T>& c) const {
    T* const y = c.output();
    for (dim_t i = 0, n = c.output_shape().numel(); i < n; ++i) y[i] = static_cast<T>(value);
    cpu::write_strided(inner(c), y, 0, c.input_shape().numel(), c.input());
  }
  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() != nullptr)
      cpu::read_strided(inner(c), c.output_gradient(), 0, c.input_shape().numel(),
                        c.input_gradient());
  }

 private:
  constexpr dim_t side(std::size_t d, std::size_t end, const shape& in) const {
    const std::size_t at = 2 * (in.rank() - 1 - d) + end;
    return at < sides.size() ? sides[at] : 0;
  }
  template <class T>
  cpu::strided_map inner(const context<T>& c) const {
    cpu::strided_map m = cpu::dense_map(c.output_shape());
    for (std::size_t d = 0; d < m.rank; ++d) {
      m.extents[d] = c.input_shape()[d];
      m.offset += m.strides[d] * side(d, 0, c.input_shape());
    }
    return cpu::merged(m);
  }
};

/// Inputs of one shape along a new dimension.
struct stack {
  static constexpr std::string_view kind = "stack";
  static constexpr kept keeps = kept::nothing;

  dim_t dim = 0;

  constexpr bool operator==(const stack&) const = default;

  constexpr inferred infer(const shape_list& in) const {
    const std::size_t rank = in[0].rank() + 1;
    if (!has_dim(dim, rank) || rank > shape::max_rank)
      return diagnostic{
          "stack expects a dim within {expected} dimensions, got {number} (input {input})",
          static_cast<dim_t>(rank), dim, in[0]};
    shape each = in[0];
    for (std::size_t i = 1; i < in.size(); ++i) {
      if (!compatible(in[0], in[i]))
        return diagnostic{"stack expects equal shapes, got {input} and {other}", 0, 0, in[0],
                          in[i]};
      for (std::size_t d = 0; d < each.rank(); ++d)
        if (each[d] < 0) each[d] = in[i][d];
    }
    shape out;
    for (std::size_t d = 0, from = 0; d < rank; ++d)
      out.push_back(d == dim_of(dim, rank) ? static_cast<dim_t>(in.size()) : each[from++]);
    return out;
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  constexpr dim_t joins_along() const { return dim; }
  void describe(description& d) const { d.add("dim", std::to_string(dim)); }

  template <class T>
  void forward(const context<T>& c) const {
    for (std::size_t i = 0; i < c.input_count(); ++i)
      if (const auto m = part(c, i); c.input(i) != c.output() + m.offset)
        cpu::write_strided(m, c.output(), 0, c.input_shape(i).numel(), c.input(i));
  }
  template <class T>
  void backward(const context<T>& c) const {
    for (std::size_t i = 0; i < c.input_count(); ++i)
      if (const auto m = part(c, i);
          c.input_gradient(i) != nullptr && c.input_gradient(i) != c.output_gradient() + m.offset)
        cpu::read_strided(m, c.output_gradient(), 0, c.input_shape(i).numel(), c.input_gradient(i));
  }

 private:
  template <class T>
  cpu::strided_map part(const context<T>& c, std::size_t i) const {
    cpu::strided_map m = cpu::dense_map(c.output_shape());
    const std::size_t d = dim_of(dim, m.rank);
    m.offset = static_cast<dim_t>(i) * m.strides[d];
    m.extents[d] = 1;
    return cpu::merged(m);
  }
};

}  // namespace ops

/// x within a border of `value`: torch.nn.functional.pad. Two sizes for each dimension, not
/// negative, those of the last dimension first: pad<left, right, top, bottom>(x). For other borders
/// see the padding modules.
template <dim_t... Sides, symbolic X>
requires(sizeof...(Sides) % 2 == 0 &&
         sizeof...(Sides) <= shape::max_rank) constexpr auto pad(const X& x, double value = 0) {
  static_assert(((Sides >= 0) && ...), "ikebana: pad takes sizes that are not negative");
  return apply(ops::pad{ops::number_list::of<Sides...>(), value}, x);
}

/// Values of one shape along a new dimension: torch.stack.
template <dim_t Dim = 0, symbolic... X>
requires(sizeof...(X) > 0 && sizeof...(X) <= max_arity) constexpr auto stack(const X&... x) {
  return apply(ops::stack{Dim}, x...);
}

}  // namespace ikebana
