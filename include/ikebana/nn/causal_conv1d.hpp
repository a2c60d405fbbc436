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
#include "ikebana/cpu/causal_step.hpp"
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
/// stateful<N>, which takes a batch of N, the zeros are in front of the first call alone: a later
/// call continues where the previous one ended, in training and in evaluation. So a sequence may be
/// given in blocks of any length, with a stride in blocks of whole strides. Backward ends at the
/// beginning of a call.
///
/// O(output elements * in_channels / groups * kernel) multiply-adds; no allocation. The input is
/// copied to planned memory, behind what it is extended by. In evaluation, a single step with
/// stateful<N> and weights of up to 64 KB of floats reads packed weights, which the state keeps.
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
  static constexpr dim_t step_length = convolution::options::stride[0];

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
    if (state_batch > 0 && in.back() > 0 && in.back() % step_length != 0)
      return diagnostic{
          "causal_conv1d that is stateful expects a length divisible by stride = {expected}, got "
          "{got} (input {input})",
          step_length, in.back(), in};
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
  /// The last samples of all channels, in a ring; which is the oldest; packed weights.
  constexpr std::array<buffer_spec, 3> buffers() const requires(state_batch > 0) {
    return {
        buffer_spec{.name = "state",
                    .extents = shape{state_batch, ring, inner.in_channels.value()},
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
      if constexpr (state_batch == 0)
        for (dim_t k = 0; k < reach; ++k) row[k] = T{0};
      copy(length, c.input() + i * length, row + reach);
    }
    if constexpr (state_batch > 0) {
      unroll(c, 1, wide, reach + length);
      const dim_t n = channels(), count = std::min(length, ring);
      std::int64_t& position = *oldest(c);
      const dim_t first = std::min(count, ring - position);
      for (dim_t b = 0; b < state_batch; ++b) {
        const T* const newest = c.input() + b * n * length + length - count;
        T* const samples = ring_of(c, b);
        cpu::transpose_samples<T>(n, first, newest, length, samples + position * n, n);
        cpu::transpose_samples<T>(n, count - first, newest + first, length, samples, n);
      }
      position = (position + count) % ring;
    }
    with_wide_input(c, nullptr, [&](const context<T>& of_inner) { inner.forward(of_inner); });
  }

  template <class T>
  void backward(const context<T>& c) const {
    T* const dx = c.input_gradient();
    T* const wide = dx == nullptr ? nullptr : c.template saved<T>(1);
    // A single step in evaluation leaves its window in the state.
    if constexpr (state_batch > 0)
      if (c.input_shape().back() == 1 && !c.training()) unroll(c, 0, c.template saved<T>(0), ring);
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

  constexpr dim_t channels() const { return In >= 0 ? In : inner.in_channels.value(); }

  /// The elements that packed weights take, after 16 for the stamp that they are of; 0 if single
  /// steps are convolutions.
  constexpr dim_t packed_size() const {
    const dim_t in = inner.in_channels.value();
    if (state_batch == 0 || step_length != 1 || convolution::options::groups != 1 || in <= 0 ||
        in * Out * taps > dim_t{1} << 14)
      return 0;
    return 16 + cpu::causal_step_size(in, Out, taps);
  }

  template <class T>
  static std::int64_t* oldest(const context<T>& c) {
    return c.template buffer<std::int64_t>(1);
  }
  template <class T>
  T* ring_of(const context<T>& c, dim_t sequence) const {
    return c.template buffer<T>(0) + sequence * ring * channels();
  }
  /// Copies the rings in the order of time, without the `skipped` oldest samples, to rows.
  template <class T>
  void unroll(const context<T>& c, dim_t skipped, T* to, dim_t row_step) const {
    const dim_t n = channels();
    dim_t from = *oldest(c) + skipped;
    if (from >= ring) from -= ring;
    const dim_t first = std::min(ring - skipped, ring - from);
    for (dim_t b = 0; b < state_batch; ++b, to += n * row_step) {
      cpu::transpose_samples<T>(first, n, ring_of(c, b) + from * n, n, to, row_step);
      cpu::transpose_samples<T>(ring - skipped - first, n, ring_of(c, b), n, to + first, row_step);
    }
  }

  template <class T>
  const T* packed_weights(const context<T>& c) const {
    T* const memory = c.template buffer<T>(2);
    const std::uint64_t now = c.parameter_stamp();
    if (std::memcmp(memory, &now, sizeof now) != 0) {
      cpu::pack_causal_step<T>(channels(), Out, taps, c.parameter(0),
                               convolution::options::bias ? c.parameter(1) : nullptr, memory + 16);
      std::memcpy(memory, &now, sizeof now);
    }
    return memory + 16;
  }

  /// One sample, which takes the place of the oldest.
  template <class T>
  void step(const context<T>& c) const {
    const dim_t n = channels();
    std::int64_t& position = *oldest(c);
    T* const newest = c.template buffer<T>(0) + position * n;
    position = position + 1 < ring ? position + 1 : 0;
    T* const y = c.output();
    const T* const added = c.residual();
    const cpu::activation last = c.function();
    // The step applies a function that is last and that it knows.
    const bool applies = added == nullptr && last <= cpu::activation::tanh;
    const T* const packed = packed_weights(c);
    for (dim_t b = 0; b < state_batch; ++b) {
      copy(n, c.input() + b * n, newest + b * ring * n);
      cpu::run_causal_step<T>({.in = n,
                               .out = Out,
                               .taps = taps,
                               .length = ring,
                               .dilation = convolution::options::dilation[0],
                               .first = position,
                               .packed = packed,
                               .ring = ring_of(c, b),
                               .y = y + b * Out,
                               .function = applies ? last : cpu::activation::none});
    }
    if (added != nullptr)
      for (dim_t i = 0; i < state_batch * Out; ++i) y[i] += added[i];
    if (!applies) c.function()(state_batch, Out, y, Out);
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
