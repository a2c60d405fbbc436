#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/recurrent.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/conv.hpp"

namespace ikebana {

namespace detail {

/// The convolution with the options that are none of `stateful`.
template <dim_t In, dim_t Out, class Kept, class... Options>
struct conv_without_state;
template <dim_t In, dim_t Out, class... Kept>
struct conv_without_state<In, Out, void(Kept...)> {
  using type = conv<1, In, Out, Kept...>;
};
template <dim_t In, dim_t Out, class... Kept, class First, class... Rest>
struct conv_without_state<In, Out, void(Kept...), First, Rest...>
    : std::conditional_t<is_option_of<First, stateful_option>,
                         conv_without_state<In, Out, void(Kept...), Rest...>,
                         conv_without_state<In, Out, void(Kept..., First), Rest...>> {};

}  // namespace detail

/// A convolution along time whose output at a position depends on no later input: a conv1d of an
/// input that is extended by dilation (kernel - 1) zeros in front (van den Oord et al., WaveNet: A
/// Generative Model for Raw Audio, 2016). [N, in_channels, length], or unbatched [in_channels,
/// length], becomes [N, out_channels, (length - 1) / stride + 1].
///
/// Parameters: those of conv1d. In is a number, `lazy` or `dynamic`. Options: kernel<K> (required),
/// stride<S> (default 1), dilation<D> (1), groups<G> (1), bias<bool> (true), stateful<N> (0). With
/// stateful<N>, which takes a batch of N and stride 1, the zeros are in front of the first call
/// alone: a later call continues where the previous one ended, in training and in evaluation. So a
/// sequence may be given in blocks of any length. Backward ends at the beginning of a call.
///
/// O(output elements * in_channels / groups * kernel) multiply-adds; no allocation. The input is
/// copied to planned memory, behind what it is extended by. In evaluation, a single step with
/// stateful<N> and weights of up to 64 KB of floats is one product with packed weights, which the
/// state keeps.
template <dim_t In, dim_t Out, class... Options>
struct causal_conv1d {
  static_assert(
      detail::option_set<kernel<>, stride<>, dilation<>, groups<1>, bias<true>,
                         stateful<0>>::template accepts<Options...>,
      "ikebana: causal_conv1d takes the options kernel, stride, dilation, groups, bias and "
      "stateful, each once");

  using convolution = typename detail::conv_without_state<In, Out, void(), Options...>::type;
  static constexpr std::string_view kind = "causal_conv1d";
  static constexpr bool is_lazy = In == lazy;
  static constexpr kept keeps = kept::nothing;
  static constexpr bool takes_residual = true;
  static constexpr bool takes_function = true;
  static constexpr std::size_t plan_bytes = convolution::plan_bytes;
  static constexpr dim_t reach = convolution::options::reach[0] - 1;
  static constexpr bool adds_zeros = reach > 0;
  static constexpr dim_t state_batch = detail::option_or<stateful<0>, Options...>::value;
  static_assert(state_batch >= 0, "ikebana: stateful<N> is how many sequences, or 0");
  static_assert(state_batch == 0 || convolution::options::stride[0] == 1,
                "ikebana: causal_conv1d that is stateful needs a stride of 1");

  [[no_unique_address]] convolution inner{};

  constexpr inferred infer(const shape& in) const {
    if (const diagnostic wrong = detail::check_conv_channels<"causal_conv", 1>(
            in, inner.in_channels.value(), Out, convolution::options::groups);
        !wrong.ok())
      return wrong;
    if (in.back() == 0)
      return diagnostic{
          "causal_conv1d expects a sequence of at least {expected} step, got {got} "
          "(input {input})",
          1, 0, in};
    if (state_batch > 0 && !fits(state_batch, convolution::options::batch(in)))
      return diagnostic{
          "causal_conv1d keeps the states of a batch of {expected}, got {got} (input "
          "{input})",
          state_batch, convolution::options::batch(in), in};
    return inner.infer(widened(in));
  }

  template <shape Input>
  constexpr auto become() const {
    return causal_conv1d<Input[convolution::options::channel_dim(Input)], Out, Options...>{};
  }
  constexpr void bind(const shape_list& in) { inner.bind(in); }
  constexpr void bind_state(std::span<const shape> parameters, std::span<const shape> buffers) {
    inner.bind_state(parameters, buffers);
  }

  /// The same with a bias, into which inference folds a norm.
  constexpr auto with_bias() const {
    return causal_conv1d<In, Out, detail::set_option<bias<true>, Options>...>{inner.with_bias()};
  }

  constexpr auto parameters() const { return inner.parameters(); }
  /// The last samples of each channel, in a ring; the offset of the oldest; packed weights.
  constexpr std::array<buffer_spec, 3> buffers() const requires(state_batch > 0) {
    return {
        buffer_spec{.name = "state",
                    .extents = shape{state_batch, inner.in_channels.value(), ring},
                    .persistent = false},
        buffer_spec{
            .name = "oldest", .type = dtype::int64, .follows_model = false, .persistent = false},
        buffer_spec{.name = "packed_weights",
                    .extents = shape{packed_size()},
                    .persistent = false,
                    .is_cache = true}};
  }
  /// The extended input, and its gradient.
  constexpr std::array<saved_spec, 2> saved(const shape_list& in) const {
    return {saved_spec{0, widened(in[0])}, saved_spec{0, widened(in[0])}};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list& out) const {
    return inner.multiply_adds(in, out);
  }
  void describe(description& d) const {
    inner.describe(d);
    if (state_batch > 0) d.add("stateful", state_batch);
  }

  /// By which the last forward ran, but for single steps; "" if none is kept.
  static const char* algorithm(std::span<const std::byte> plans) {
    return convolution::algorithm(plans);
  }

  template <class T>
  void forward(const context<T>& c) const {
    if constexpr (state_batch > 0)
      if (c.input_shape().back() == 1 && packed_size() > 0 && !c.training() &&
          c.parameter_stamp() != 0)
        return step(c);
    const shape& in = c.input_shape();
    const dim_t rows = in.numel() / in.back(), length = in.back();
    T* const wide = c.template saved<T>(0);
    for (dim_t i = 0; i < rows; ++i) {
      T* const row = wide + i * (reach + length);
      if constexpr (state_batch > 0)
        unroll(c, i, 1, row);
      else
        for (dim_t k = 0; k < reach; ++k) row[k] = T{0};
      copy(length, c.input() + i * length, row + reach);
      if constexpr (state_batch > 0) copy(ring, row + length - 1, ring_of(c, i));
    }
    if constexpr (state_batch > 0) *oldest(c) = 0;
    with_wide_input(c, nullptr, [&](const context<T>& of_inner) { inner.forward(of_inner); });
  }

  template <class T>
  void backward(const context<T>& c) const {
    T* const dx = c.input_gradient();
    T* const wide = dx == nullptr ? nullptr : c.template saved<T>(1);
    // A single step in evaluation leaves its window in the state.
    if constexpr (state_batch > 0)
      if (c.input_shape().back() == 1 && !c.training())
        for (dim_t i = 0; i < c.input_shape().numel(); ++i)
          unroll(c, i, 0, c.template saved<T>(0) + i * ring);
    with_wide_input(c, wide, [&](const context<T>& of_inner) { inner.backward(of_inner); });
    if (dx == nullptr) return;
    const shape& in = c.input_shape();
    const dim_t length = in.back();
    for (dim_t i = 0; i < in.numel() / length; ++i)
      copy(length, wide + i * (reach + length) + reach, dx + i * length);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static constexpr shape widened(const shape& in) {
    shape wide = in;
    if (wide.back() >= 0) wide[wide.rank() - 1] += reach;
    return wide;
  }

  static constexpr dim_t ring = reach + 1, taps = convolution::options::taps;

  /// The elements that packed weights take, after 16 for the stamp and the instruction set that
  /// they are of; 0 if single steps are convolutions.
  constexpr dim_t packed_size() const {
    const dim_t in = inner.in_channels.value();
    if (state_batch == 0 || convolution::options::groups != 1 || in <= 0 ||
        in * Out * taps > dim_t{1} << 14)
      return 0;
    return 16 + cpu::packed_recurrent_size(Out, in * taps);
  }

  template <class T>
  static T* ring_of(const context<T>& c, dim_t row) {
    return c.template buffer<T>(0) + row * ring;
  }
  template <class T>
  static std::int64_t* oldest(const context<T>& c) {
    return c.template buffer<std::int64_t>(1);
  }
  /// Copies the ring of a row in the order of time, without the `skipped` oldest samples.
  template <class T>
  static void unroll(const context<T>& c, dim_t row, dim_t skipped, T* to) {
    dim_t from = *oldest(c) + skipped;
    if (from >= ring) from -= ring;
    const dim_t first = std::min(ring - skipped, ring - from);
    copy(first, ring_of(c, row) + from, to);
    copy(ring - skipped - first, static_cast<const T*>(ring_of(c, row)), to + first);
  }

  template <class T>
  const T* packed_weights(const context<T>& c) const {
    T* const memory = c.template buffer<T>(2);
    const std::uint64_t now[] = {c.parameter_stamp(),
                                 static_cast<std::uint64_t>(cpu::active_instruction_set())};
    if (std::memcmp(memory, now, sizeof now) != 0) {
      cpu::pack_recurrent<T>(Out, inner.in_channels.value() * taps, c.parameter(0), memory + 16);
      std::memcpy(memory, now, sizeof now);
    }
    return memory + 16;
  }

  /// One sample: gathers the taps of each channel, as a row of the weights has them.
  template <class T>
  void step(const context<T>& c) const {
    const dim_t channels = In >= 0 ? In : inner.in_channels.value(), rows = state_batch * channels;
    std::int64_t& position = *oldest(c);
    const auto next = [](dim_t p, dim_t by) { return p + by < ring ? p + by : p + by - ring; };
    // The tables of few taps are shared by the rows; those of many do not belong on a stack.
    constexpr bool has_table = taps <= 32;
    dim_t at[has_table ? taps : 1];
    const dim_t now = position;
    position = at[0] = next(now, 1);
    if constexpr (has_table)
      for (dim_t k = 1; k < taps; ++k) at[k] = next(at[k - 1], convolution::options::dilation[0]);
    T* window = c.template saved<T>(0);
    T* samples = ring_of(c, 0);
    const T* const x = c.input();
    for (dim_t i = 0; i < rows; ++i, samples += ring) {
      samples[now] = x[i];
      if constexpr (has_table) {
#pragma GCC unroll 8
        for (dim_t k = 0; k < taps; ++k) *window++ = samples[at[k]];
      } else {
        dim_t from = at[0];
        for (dim_t k = 0; k < taps; ++k, from = next(from, convolution::options::dilation[0]))
          *window++ = samples[from];
      }
    }
    const T* const bias = convolution::options::bias ? c.parameter(1) : nullptr;
    T* const y = c.output();
    cpu::recurrent_product<T>(state_batch, Out, channels * taps, packed_weights(c), bias,
                              {c.template saved<T>(0), channels * taps}, {y, Out}, false);
    if (const T* const added = c.residual(); added != nullptr)
      for (dim_t i = 0; i < state_batch * Out; ++i) y[i] += added[i];
    c.function()(state_batch, Out, y, Out);
  }

  template <class T>
  static void copy(dim_t n, const T* from, T* to) {
    if (n > 0) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  }

  /// Calls f with the context of the inner convolution, whose input is the extended one.
  template <class T, class F>
  static void with_wide_input(const context<T>& c, std::type_identity_t<T>* gradient, F&& f) {
    const shape shapes[] = {widened(c.input_shape()), c.output_shape()};
    T* const values[] = {c.template saved<T>(0), c.output()};
    T* const value_gradients[] = {
        nullptr, const_cast<T*>(c.value_gradients == nullptr ? nullptr : c.output_gradient())};
    T* const edge_gradients[] = {gradient};
    static constexpr int first = 0;
    context<T> of_inner = c;
    of_inner.shapes = shapes;
    of_inner.inputs = &first;
    of_inner.first_output = 1;
    of_inner.values = values;
    of_inner.other_output = nullptr;
    of_inner.value_gradients = value_gradients;
    of_inner.edge_gradients = edge_gradients;
    f(of_inner);
  }
};

/// A causal_conv1d whose in_channels are inferred from the first input.
template <dim_t Out, class... Options>
using lazy_causal_conv1d = causal_conv1d<lazy, Out, Options...>;

}  // namespace ikebana
