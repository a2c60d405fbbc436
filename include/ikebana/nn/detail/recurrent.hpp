#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/saturated.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/product.hpp"
#include "ikebana/nn/detail/recurrent_names.hpp"
#include "ikebana/nn/detail/recurrent_run.hpp"
#include "ikebana/nn/detail/recurrent_sizes.hpp"
#include "ikebana/nn/detail/single_step.hpp"
#include "ikebana/nn/detail/spatial.hpp"
#include "ikebana/nn/dropout.hpp"

namespace ikebana {

/// What rnn, lstm and gru share; Family supplies the gates. The headers of the three describe the
/// rest.
///
/// Inputs: x, [L, N, features], [N, L, features] with batch_first<true>, or [L, features]; with
/// packed<true>, lengths, indices [N]; then all initial states or none (zeros), h_0 and for an lstm
/// c_0: [layers * directions, N, hidden_size], without N if x has none. Outputs: y, shaped as x
/// with directions * hidden_size features, h_n, and for an lstm c_n, shaped as the initial states.
///
/// Options: num_layers<N> (1), bias<bool> (true), batch_first<bool> (false), bidirectional<bool>
/// (false), packed<bool> (false), stateful<N> (0). In training, `dropout` is the probability with
/// which each output of a layer but the last is dropped.
///
/// packed<true> corresponds to PyTorch's pack_padded_sequence(enforce_sorted=False) and
/// pad_packed_sequence. Sequence b has lengths[b] steps, from 1 to L (else shape_error). Elements
/// of x beyond them are never read, y is 0 there, the final states are those after the sequence's
/// own last step, and the reverse direction starts at that step.
///
/// stateful<N>: each call starts from the states in which the previous one ended. These are the
/// buffers h (and c), zero at first and not part of a state dict; the batch is N, which gives them
/// a shape. Gradients do not flow into the previous call (truncated backpropagation through time).
///
/// No allocation; memory for backward is O(layers * directions * L * N * hidden_size).
template <class Family, dim_t In, dim_t Hidden, class... Options>
struct recurrent {
  static_assert(Hidden <= shape::max_elements, "ikebana: hidden_size is at most 2^56");
  static_assert(Hidden > 0, "ikebana: a recurrent module needs hidden_size, a number above 0");

  using gates = typename Family::template gates_for<Options...>::type;
  static constexpr std::string_view kind = gates::kind;
  static constexpr bool is_lazy = In == lazy;
  static constexpr dim_t hidden_size = Hidden;
  static constexpr dim_t layers = detail::option_or<num_layers<1>, Options...>::value;
  static constexpr bool has_bias = detail::option_or<bias<true>, Options...>::value;
  static constexpr bool is_batch_first = detail::option_or<batch_first<false>, Options...>::value;
  static constexpr dim_t directions =
      detail::option_or<bidirectional<false>, Options...>::value ? 2 : 1;
  static constexpr bool is_packed = detail::option_or<packed<false>, Options...>::value;
  static constexpr dim_t projection = detail::option_or<proj_size<0>, Options...>::value;
  static constexpr dim_t state_batch = detail::option_or<stateful<0>, Options...>::value;
  static_assert(layers > 0, "ikebana: num_layers<N> is above 0");
  static_assert(projection >= 0 && projection < Hidden,
                "ikebana: proj_size<N> is below hidden_size");
  static_assert(state_batch >= 0, "ikebana: stateful<N> is how many sequences, or 0");

  static constexpr std::size_t states = gates::has_cell ? 2 : 1;
  static constexpr std::size_t outputs = 1 + states;
  static constexpr bool is_random = layers > 1;
  static constexpr kept keeps = is_packed ? kept::nothing : kept::input;

  static constexpr bool is_lowered_by_type = std::is_empty_v<extent<In>>;  // Not by dropout.

  probability dropout = 0.0;
  [[no_unique_address]] extent<In> input_size{};

  static constexpr element_kind input_kind(std::size_t i, std::size_t) {
    return is_packed && i == 1 ? element_kind::index : element_kind::real;
  }

  constexpr inferred infer(const shape_list& in) const {
    constexpr std::size_t least = is_packed ? 2 : 1;
    const auto given = static_cast<dim_t>(in.size());
    if (state_batch > 0 && in.size() != least)
      return diagnostic{
          says<" that is stateful expects {expected} inputs, no initial states, got {got}">, least,
          given};
    if (in.size() != least && in.size() != least + states)
      return diagnostic{
          is_packed ? says<" expects an input, its lengths and all initial states or none, got "
                           "{got} inputs">
                    : says<" expects an input and all initial states or none, got {got} inputs">,
          0, given};
    const shape& x = in[0];
    if (is_packed && x.rank() != 3)
      return diagnostic{says<" that is packed expects an input of {expected} dimensions, got {got} "
                             "(input {input})">,
                        3, static_cast<dim_t>(x.rank()), x};
    if (x.rank() != 2 && x.rank() != 3)
      return diagnostic{says<" expects an input of 2 (unbatched) or 3 dimensions, got {got} (input "
                             "{input})">,
                        3, static_cast<dim_t>(x.rank()), x};
    if (!fits(input_size.value(), x.back()))
      return diagnostic{says<" expects input_size = {expected}, got {got} (input {input})">,
                        input_size.value(), x.back(), x};
    if (steps_of(x) == 0)
      return diagnostic{says<" expects a sequence of at least {expected} step, got {got} (input "
                             "{input})">,
                        1, 0, x};
    if (state_batch > 0 && !fits(state_batch, batch_of(x)))
      return diagnostic{says<" keeps the states of a batch of {expected}, got {got} (input "
                             "{input})">,
                        state_batch, batch_of(x), x};
    if (is_packed && !compatible(shape{batch_of(x)}, in[1]))
      return diagnostic{says<" expects lengths of shape {other}, got {input}">, 0, 0, in[1],
                        shape{batch_of(x)}};
    const shape h = state_shape(x, out_size), c = state_shape(x, Hidden);
    if (in.size() > least && !compatible(h, in[least]))
      return diagnostic{says<" expects h_0 of shape {other}, got {input}">, 0, 0, in[least], h};
    if (states == 2 && in.size() > least && !compatible(c, in[least + 1]))
      return diagnostic{says<" expects c_0 of shape {other}, got {input}">, 0, 0, in[least + 1], c};
    const shape y = x.with(x.rank() - 1, directions * out_size);
    if constexpr (states == 2)
      return shape_list{y, h, c};
    else
      return shape_list{y, h};
  }

  template <shape Input, shape...>
  constexpr auto become() const {
    return recurrent<Family, Input.back(), Hidden, Options...>{dropout, {}};
  }

  constexpr void bind(const shape_list& in) { input_size.bind(in[0].back()); }
  constexpr void bind_state(std::span<const shape> parameters, std::span<const shape>) {
    input_size.bind(parameters[0].back());
  }

  constexpr auto parameters() const {
    constexpr auto each = static_cast<std::size_t>(2 + (has_bias ? 2 : 0) + (projection > 0));
    constexpr auto& names = detail::recurrent_names<static_cast<std::size_t>(layers)>::table;
    const initializer init = initializer::kaiming_uniform(Hidden);
    std::array<parameter_spec, each* static_cast<std::size_t>(layers * directions)> out{};
    std::size_t k = 0;
    for (dim_t l = 0; l < layers; ++l)
      for (dim_t d = 0; d < directions; ++d) {
        const auto& name = names[static_cast<std::size_t>(2 * l + d)];
        const dim_t in = l == 0 ? input_size.value() : directions * out_size;
        constexpr dim_t rows = gates::count * Hidden;
        out[k++] = {name[0].data, shape{rows, in}, init};
        out[k++] = {name[1].data, shape{rows, out_size}, init};
        if (has_bias) {
          out[k++] = {name[2].data, shape{rows}, init};
          out[k++] = {name[3].data, shape{rows}, init};
        }
        if (projection > 0) out[k++] = {name[4].data, shape{out_size, Hidden}, init};
      }
    return out;
  }

  constexpr auto buffers() const requires(state_batch > 0) {
    std::array<buffer_spec, states + 1> out{};
    out[0] = {.name = "h",
              .extents = shape{layers * directions, state_batch, out_size},
              .persistent = false};
    if constexpr (states == 2)
      out[1] = {.name = "c",
                .extents = shape{layers * directions, state_batch, Hidden},
                .persistent = false};
    out[states] = {.name = "packed_weights",
                   .extents = shape{layers * directions, kept_weights()},
                   .persistent = false,
                   .is_cache = true};
    return out;
  }

  constexpr auto saved(const shape_list& in) const {
    const detail::recurrent_sizes n = sizes(in[0]);
    const detail::recurrent_widths<gates> w{n};
    std::array<saved_spec, is_packed ? 8 : 5> out{};
    out[0].extents = shape{layers * directions, n.steps, n.batch, w.kept};
    out[1].extents = shape{n.steps, n.batch, w.backward};
    out[2].extents = shape{n.steps, n.batch, w.values};
    out[3].extents = shape{n.batch, w.sequence};
    out[4].extents = shape{n.packed_size(w.gates)};
    if constexpr (is_packed) {
      out[5] = {sizeof(std::int64_t), shape{n.batch}};
      out[6] = {sizeof(std::int64_t), shape{2, n.steps}};
      out[7].extents = shape{2, n.steps, n.batch, n.input};
    }
    return out;
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    constexpr saturated each = saturated{gates::count} * Hidden,
                        recurring = each * out_size + saturated{projection} * Hidden;
    const shape& x = in[0];
    return (saturated{x.numel(0, x.rank() - 1)} * directions *
            (recurring * layers +
             each * (saturated{layers - 1} * directions * out_size + x.back())))
        .value;
  }

  void describe(description& d) const {
    d.add("input_size", In == dynamic ? input_size.value() : In).add("hidden_size", Hidden);
    gates::describe(d);
    if (projection > 0) d.add("proj_size", projection);
    if (layers != 1) d.add("num_layers", layers);
    if (!has_bias) d.add("bias", has_bias);
    if (is_batch_first) d.add("batch_first", true);
    if (dropout > 0) d.add("dropout", static_cast<double>(dropout));
    if (directions == 2) d.add("bidirectional", true);
    if (is_packed) d.add("packed", true);
    if (state_batch > 0) d.add("stateful", state_batch);
  }

  template <class T>
  void validate(const context<T>& c) const requires(is_packed) {
    const auto* const lengths = c.template input<std::int64_t>(1);
    const dim_t steps = steps_of(c.input_shape());
    for (dim_t b = 0; b < batch_of(c.input_shape()); ++b)
      if (lengths[b] < 1 || lengths[b] > steps)
        throw_error(shape_error(diagnostic{gates::wrong_length, steps, lengths[b]}));
  }

  template <class Context>
  void forward(const Context& c) const {
    if constexpr (steps_alone)
      if (const dim_t in = c.input_shape().back();
          steps_of(c.input_shape()) == 1 && in > 0 && in <= 64 && !detail::rounds_products(c))
        return detail::run_single_step<gates>(c, in, Hidden, has_bias, kept_for_products());
    run(c).forward();
  }
  template <class Context>
  void backward(const Context& c) const {
    run(c).backward();
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static constexpr dim_t out_size = projection > 0 ? projection : Hidden;

  template <detail::literal... Text>
  static constexpr const char* says = detail::joined<gates::kind_literal, Text...>;

  static constexpr dim_t steps_of(const shape& x) {
    return x[x.rank() == 3 && is_batch_first ? 1 : 0];
  }
  static constexpr dim_t batch_of(const shape& x) {
    return x.rank() == 2 ? 1 : x[is_batch_first ? 0 : 1];
  }
  static constexpr shape state_shape(const shape& x, dim_t width) {
    return x.rank() == 2 ? shape{layers * directions, width}
                         : shape{layers * directions, batch_of(x), width};
  }
  static constexpr detail::recurrent_sizes sizes(const shape& x) {
    return {.layers = layers,
            .directions = directions,
            .input = x.back(),
            .hidden = Hidden,
            .projection = projection,
            .steps = steps_of(x),
            .batch = batch_of(x),
            .has_bias = has_bias,
            .batch_first = is_batch_first,
            .packed = is_packed};
  }
  /// For a stateful module, the elements kept for the packed weights of a direction.
  constexpr dim_t kept_weights() const {
    const dim_t in = input_size.value();
    return kept_for_products() +
           (steps_alone && in > 0 && in <= 64 ? detail::single_step_memory<gates>(in, Hidden) : 0);
  }
  constexpr dim_t kept_for_products() const {
    const dim_t in = input_size.value() < 0 ? 0 : input_size.value();
    const detail::recurrent_sizes n = sizes(shape{1, 1, in});
    return n.is_small() ? n.kept_weights(gates::count * Hidden) : 0;
  }
  /// Whether a single-step call has a kernel of its own.
  static constexpr bool steps_alone = (states == 2 || gates::separate) && layers == 1 &&
                                      directions == 1 && projection == 0 && state_batch == 1 &&
                                      !is_packed && Hidden <= 64;
  template <class Context>
  auto run(const Context& c) const {
    return detail::recurrent_run<Context, gates, is_packed>(c, sizes(c.input_shape()), dropout,
                                                            state_batch > 0);
  }
};

}  // namespace ikebana
