#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/saturated.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/recurrent.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/product.hpp"
#include "ikebana/nn/detail/recurrent_run.hpp"
#include "ikebana/nn/detail/spatial.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/nn/lstm.hpp"
#include "ikebana/nn/rnn.hpp"

namespace ikebana {

namespace detail {

struct rnn_cell_family {
  template <class... Options>
  struct gates_for {
    static_assert(option_set<bias<true>, nonlinearity<"tanh">>::template accepts<Options...>,
                  "ikebana: rnn_cell takes the options bias and nonlinearity, each once");
    using type = rnn_gates<is_rectified<Options...>()>;
  };
};
template <class Gates>
struct plain_cell_family {
  template <class... Options>
  struct gates_for {
    static_assert(option_set<bias<true>>::template accepts<Options...>,
                  "ikebana: lstm_cell and gru_cell take the option bias<bool>");
    using type = Gates;
  };
};

}  // namespace detail

/// One step of a recurrent module; Family supplies the gates.
/// Inputs: x, [N, input_size] or [input_size]; then the states or none (zeros): h [N, hidden_size]
/// and for an lstm_cell c [N, hidden_size], without N if x has none. Outputs: the new states.
/// Parameters: weight_ih (gates * hidden_size, input_size), weight_hh (gates * hidden_size,
/// hidden_size), bias_ih, bias_hh (gates * hidden_size) unless bias<false>; all initialised
/// uniformly within 1 / sqrt(hidden_size). No allocation.
template <class Family, dim_t In, dim_t Hidden, class... Options>
struct recurrent_cell {
  static_assert(Hidden <= shape::max_elements, "ikebana: hidden_size is at most 2^56");
  static_assert(Hidden > 0, "ikebana: a recurrent cell needs hidden_size, a number above 0");

  using gates = typename Family::template gates_for<Options...>::type;
  static constexpr std::string_view kind{
      detail::joined_text<gates::kind_literal, detail::literal{"_cell"}>::value.data};
  static constexpr bool is_lazy = In == lazy;
  static constexpr dim_t hidden_size = Hidden;
  static constexpr bool has_bias = detail::option_or<bias<true>, Options...>::value;
  static constexpr std::size_t outputs = gates::has_cell ? 2 : 1;
  static constexpr kept keeps = kept::input;

  [[no_unique_address]] extent<In> input_size{};

  constexpr inferred infer(const shape_list& in) const {
    const shape& x = in[0];
    if (in.size() != 1 && in.size() != 1 + outputs)
      return diagnostic{says<" expects an input and all states or none, got {got} inputs">, 0,
                        static_cast<dim_t>(in.size())};
    if (x.rank() != 1 && x.rank() != 2)
      return diagnostic{says<" expects an input of 1 (unbatched) or 2 dimensions, got {got} (input "
                             "{input})">,
                        2, static_cast<dim_t>(x.rank()), x};
    if (!fits(input_size.value(), x.back()))
      return diagnostic{says<" expects input_size = {expected}, got {got} (input {input})">,
                        input_size.value(), x.back(), x};
    const shape state = x.with(x.rank() - 1, Hidden);
    for (std::size_t i = 1; i < in.size(); ++i)
      if (!compatible(state, in[i]))
        return diagnostic{says<" expects states of shape {other}, got {input}">, 0, 0, in[i],
                          state};
    if constexpr (gates::has_cell)
      return shape_list{state, state};
    else
      return state;
  }

  template <shape Input, shape...>
  constexpr auto become() const {
    return recurrent_cell<Family, Input.back(), Hidden, Options...>{};
  }

  constexpr void bind(const shape_list& in) { input_size.bind(in[0].back()); }
  constexpr void bind_state(std::span<const shape> parameters, std::span<const shape>) {
    input_size.bind(parameters[0].back());
  }

  constexpr std::array<parameter_spec, has_bias ? 4 : 2> parameters() const {
    constexpr dim_t rows = gates::count * Hidden;
    const initializer init = initializer::kaiming_uniform(Hidden);
    const parameter_spec of_input{"weight_ih", shape{rows, input_size.value()}, init},
        of_state{"weight_hh", shape{rows, Hidden}, init};
    if constexpr (has_bias)
      return {of_input, of_state, parameter_spec{"bias_ih", shape{rows}, init},
              parameter_spec{"bias_hh", shape{rows}, init}};
    else
      return {of_input, of_state};
  }

  /// Gates and what they keep; the gradients of their sums; the gradients of the states.
  constexpr std::array<saved_spec, 3> saved(const shape_list& in) const {
    const auto each = [&](dim_t n) {
      return saved_spec{0, in[0].rank() == 1 ? shape{n} : shape{in[0][0], n}};
    };
    constexpr dim_t sums = (gates::separate ? 2 : 1) * gates::count * Hidden;
    return {each((gates::count + gates::extra + 1) * Hidden), each(sums), each(2 * Hidden)};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    return (saturated{in[0].numel(0, in[0].rank() - 1)} * gates::count * Hidden *
            (in[0].back() + Hidden))
        .value;
  }

  void describe(description& d) const {
    d.add("input_size", In == dynamic ? input_size.value() : In).add("hidden_size", Hidden);
    gates::describe(d);
    if (!has_bias) d.add("bias", has_bias);
  }

  template <class Context>
  void forward(const Context& c) const {
    using T = typename Context::value_type;
    const dim_t in = c.input_shape().back(), m = rows_in(c);
    detail::recurrent_step<T> s{m, Hidden, gates_of(c), {}, {c.output(), Hidden}, {}, {}};
    for (dim_t i = 0; i < gates::extra; ++i) s.extra[i] = extra(c, i);
    T* const h = s.h.data;
    s.before = s.h;
    load(c, 0, m, extra(c, gates::extra).data);
    load(c, 0, m, h);
    if constexpr (gates::has_cell) {
      s.c = {c.output(1), Hidden};
      load(c, 1, m, s.c.data);
    }
    if constexpr (gates::separate) s.from_h = {c.template saved<T>(1), width};
    detail::product(c, no, yes, m, width, in, c.input(), in, c.parameter(0), in, T{0}, s.gates.data,
                    width, has_bias ? c.parameter(2) : nullptr);
    detail::product(c, no, yes, m, width, Hidden, h, Hidden, c.parameter(1), Hidden,
                    gates::separate ? T{0} : T{1}, gates::separate ? s.from_h.data : s.gates.data,
                    width, has_bias ? c.parameter(3) : nullptr);
    gates::forward(s);
  }

  template <class Context>
  void backward(const Context& c) const {
    using T = typename Context::value_type;
    const dim_t in = c.input_shape().back(), m = rows_in(c);
    const auto h_before = extra(c, gates::extra);
    T* const dgates = c.template saved<T>(1);
    T* const dfrom_h = gates::separate ? dgates + m * width : dgates;
    T* const dh = c.template saved<T>(2);
    detail::recurrent_step_backward<T> s{
        m,         Hidden,          gates_of(c),     {}, h_before, {}, {dh, Hidden},
        {nullptr}, {dgates, width}, {dfrom_h, width}};
    for (dim_t i = 0; i < gates::extra; ++i) s.extra[i] = extra(c, i);
    cpu::move_rows<T>(m, Hidden, {c.output_gradient(), Hidden}, s.dh);
    if constexpr (gates::has_cell) {
      s.dc = {dh + m * Hidden, Hidden};
      cpu::move_rows<T>(m, Hidden, {c.output_gradient(1), Hidden}, s.dc);
    }
    gates::backward(s);
    if (c.input_count() > 1) {
      if (c.input_gradient(1) != nullptr) {
        detail::product(c, no, no, m, Hidden, width, dfrom_h, width, c.parameter(1), Hidden, T{0},
                        c.input_gradient(1), Hidden);
        if constexpr (gates::separate)
          cpu::move_rows<T>(m, Hidden, s.dh, {c.input_gradient(1), Hidden}, true);
      }
      if constexpr (gates::has_cell)
        if (c.input_gradient(2) != nullptr)
          cpu::move_rows<T>(m, Hidden, s.dc, {c.input_gradient(2), Hidden});
    }
    const T keep = c.accumulate() ? T{1} : T{0};
    detail::product(c, yes, no, width, in, m, dgates, width, c.input(), in, keep,
                    c.parameter_gradient(0), in);
    detail::product(c, yes, no, width, Hidden, m, dfrom_h, width, h_before.data, Hidden, keep,
                    c.parameter_gradient(1), Hidden);
    if constexpr (has_bias) {
      cpu::column_sums<T>(m, width, dgates, width, c.parameter_gradient(2), c.accumulate());
      cpu::column_sums<T>(m, width, dfrom_h, width, c.parameter_gradient(3), c.accumulate());
    }
    if (c.input_gradient() != nullptr)
      detail::product(c, no, no, m, in, width, dgates, width, c.parameter(0), in, T{0},
                      c.input_gradient(), in);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static constexpr dim_t width = gates::count * Hidden;
  static constexpr auto no = cpu::transpose::no, yes = cpu::transpose::yes;

  template <detail::literal... Text>
  static constexpr const char* says =
      detail::joined<gates::kind_literal, detail::literal{"_cell"}, Text...>;

  template <class T>
  static dim_t rows_in(const context<T>& c) {
    return c.input_shape().numel(0, c.input_shape().rank() - 1);
  }
  template <class T>
  static cpu::rows_of<T> gates_of(const context<T>& c) {
    return {c.template saved<T>(0), width};
  }
  /// What follows the gates: what they keep, then h before the step.
  template <class T>
  static cpu::rows_of<T> extra(const context<T>& c, dim_t i) {
    return {c.template saved<T>(0) + rows_in(c) * (width + i * Hidden), Hidden};
  }
  template <class T>
  static void load(const context<T>& c, std::size_t i, dim_t m, T* to) {
    if (c.input_count() > 1)
      cpu::move_rows<T>(m, Hidden, {c.input(1 + i), Hidden}, {to, Hidden});
    else
      cpu::fill<T>(m * Hidden, to, T{0});
  }
};

/// PyTorch's RNNCell, a step of `rnn`: inputs x [, h], output h. Options: bias<bool> (true),
/// nonlinearity<"tanh">.
template <dim_t In, dim_t Hidden, class... Options>
using rnn_cell = recurrent_cell<detail::rnn_cell_family, In, Hidden, Options...>;

/// PyTorch's LSTMCell, a step of `lstm`: inputs x [, h, c], outputs h, c. Options: bias<bool>
/// (true).
template <dim_t In, dim_t Hidden, class... Options>
using lstm_cell =
    recurrent_cell<detail::plain_cell_family<detail::lstm_gates>, In, Hidden, Options...>;

/// PyTorch's GRUCell, a step of `gru`: inputs x [, h], output h. Options: bias<bool> (true).
template <dim_t In, dim_t Hidden, class... Options>
using gru_cell =
    recurrent_cell<detail::plain_cell_family<detail::gru_gates>, In, Hidden, Options...>;

/// Cells whose input_size is inferred from the first input.
template <dim_t Hidden, class... Options>
using lazy_rnn_cell = rnn_cell<lazy, Hidden, Options...>;
template <dim_t Hidden, class... Options>
using lazy_lstm_cell = lstm_cell<lazy, Hidden, Options...>;
template <dim_t Hidden, class... Options>
using lazy_gru_cell = gru_cell<lazy, Hidden, Options...>;

}  // namespace ikebana
