#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/layer_norm.hpp"
#include "ikebana/cpu/norm.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana {

/// y = (x - mean) / sqrt(variance + eps) * weight + bias for each channel of each sample of [N,
/// num_features, spatial...], or unbatched [num_features, spatial...] (Ulyanov, Vedaldi, Lempitsky,
/// Instance Normalization, 2016). A single element per channel throws shape_error where the
/// sample's statistics are needed. O(elements); no allocation.
///
/// With track_running_stats<true>, evaluation uses the running statistics. Training updates them
/// with the mean of the samples' statistics (the variance unbiased): running = (1 - momentum)
/// running + momentum mean. num_batches_tracked stays 0, as in PyTorch.
///
/// Parameters: weight (num_features), bias (num_features) with affine<true>. Buffers: running_mean,
/// running_var (num_features), num_batches_tracked () with track_running_stats<true>. C is a
/// number, `lazy` or `dynamic`. Options, with PyTorch's defaults: affine<bool> (false),
/// track_running_stats<bool> (false).
template <std::size_t Spatial, dim_t C, class... Options>
struct instance_norm {
  static_assert(Spatial >= 1 && Spatial <= 3);
  static_assert(
      detail::option_set<affine<false>, track_running_stats<false>>::template accepts<Options...>,
      "ikebana: instance norm takes the options affine and track_running_stats, each once");

  static constexpr std::string_view kind =
      detail::joined<"instance_norm", detail::digit<Spatial>, "d">;
  static constexpr bool is_lazy = C == lazy;
  static constexpr kept keeps = kept::input;
  static constexpr bool is_stateful = false;
  static constexpr bool is_affine = detail::option_or<affine<false>, Options...>::value;
  static constexpr bool tracks = detail::option_or<track_running_stats<false>, Options...>::value;

  double eps = 1e-5;
  double momentum = 0.1;
  [[no_unique_address]] extent<C> num_features{};

  constexpr inferred infer(const shape& in) const {
    if (in.rank() != Spatial + 1 && in.rank() != Spatial + 2)
      return diagnostic{
          says<" expects an input of ", detail::digit<Spatial + 1>, " (unbatched) or ",
               detail::digit<Spatial + 2>, " dimensions, got {got} (input {input})">,
          Spatial + 2, static_cast<dim_t>(in.rank()), in};
    const dim_t channels = in[channel_of(in)];
    if (!fits(num_features.value(), channels))
      return diagnostic{says<" expects num_features = {expected}, got {got} (input {input})">,
                        num_features.value(), channels, in};
    return in;
  }

  /// One element per channel has no variance.
  constexpr diagnostic check(const shape_list& in, bool training) const {
    if ((training || !tracks) && in[0].numel(channel_of(in[0]) + 1, in[0].rank()) == 1)
      return {says<" expects more than 1 value per channel when training, got {got} (input "
                   "{input})">,
              2, 1, in[0]};
    return {};
  }

  template <shape Input>
  constexpr auto become() const {
    return instance_norm<Spatial, Input[channel_of(Input)], Options...>{eps, momentum, {}};
  }

  constexpr void bind(const shape_list& in) { num_features.bind(in[0][channel_of(in[0])]); }

  constexpr void bind_state(std::span<const shape> parameters, std::span<const shape> buffers) {
    if (is_affine)
      num_features.bind(parameters[0][0]);
    else if (tracks)
      num_features.bind(buffers[0][0]);
  }

  constexpr std::array<parameter_spec, 2> parameters() const requires(is_affine) {
    const shape each{num_features.value()};
    return {parameter_spec{"weight", each, initializer::constant(1)},
            parameter_spec{"bias", each, initializer::constant(0)}};
  }

  constexpr std::array<buffer_spec, 3> buffers() const requires(tracks) {
    const shape each{num_features.value()};
    return {buffer_spec{.name = "running_mean", .extents = each},
            buffer_spec{.name = "running_var", .extents = each, .init = initializer::constant(1)},
            buffer_spec{.name = "num_batches_tracked",
                        .type = dtype::int64,
                        .follows_model = false,
                        .since = 2}};
  }

  /// Means, 1 / sqrt(variance + eps), and the unbiased variances if running statistics are tracked.
  constexpr std::array<saved_spec, tracks ? 3 : 2> saved(const shape_list& in) const {
    std::array<saved_spec, tracks ? 3 : 2> out{};
    const std::size_t c = channel_of(in[0]);
    for (saved_spec& s : out) s.extents = c == 0 ? shape{in[0][0]} : shape{in[0][0], in[0][1]};
    return out;
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    return in[0].numel();
  }

  void describe(description& d) const {
    d.add("num_features", num_features.value())
        .add("eps", eps)
        .add("momentum", momentum)
        .add("affine", is_affine)
        .add("track_running_stats", tracks);
  }

  template <class T>
  void forward(const context<T>& c) const {
    const sizes n(c.input_shape());
    const T* weight = is_affine ? c.parameter(0) : nullptr;
    const T* bias = is_affine ? c.parameter(1) : nullptr;
    if (tracks && !c.training()) {
      cpu::batch_norm_forward_eval<T>(n.batch, n.channels, n.inner, c.input(), weight, bias,
                                      static_cast<T>(eps), c.buffer(0), c.buffer(1), c.output());
      return;
    }
    if (n.batch * n.inner == 0) return;
    cpu::group_norm_forward<T>(n.batch, n.channels, n.inner, n.channels, c.input(), weight, bias,
                               static_cast<T>(eps), c.output(), c.template saved<T>(0),
                               c.template saved<T>(1), tracks ? c.template saved<T>(2) : nullptr);
    if constexpr (tracks) {
      track(n, c.template saved<T>(0), c.buffer(0));
      track(n, c.template saved<T>(2), c.buffer(1));
    }
  }

  template <class T>
  void backward(const context<T>& c) const {
    const sizes n(c.input_shape());
    T* dweight = is_affine ? c.parameter_gradient(0) : nullptr;
    T* dbias = is_affine ? c.parameter_gradient(1) : nullptr;
    const T* weight = is_affine ? c.parameter(0) : nullptr;
    if (tracks && !c.training())
      cpu::batch_norm_backward_eval<T>(n.batch, n.channels, n.inner, c.input(), c.output_gradient(),
                                       weight, static_cast<T>(eps), c.buffer(0), c.buffer(1),
                                       c.input_gradient(), dweight, dbias, c.accumulate());
    else
      cpu::group_norm_backward<T>(n.batch, n.channels, n.inner, n.channels, c.input(),
                                  c.output_gradient(), weight, c.template saved<T>(0),
                                  c.template saved<T>(1), c.input_gradient(), dweight, dbias,
                                  c.accumulate());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <detail::literal... Text>
  static constexpr const char* says =
      detail::joined<"instance_norm", detail::digit<Spatial>, "d", Text...>;

  static constexpr std::size_t channel_of(const shape& in) { return in.rank() - Spatial - 1; }

  struct sizes {
    dim_t batch, channels, inner;
    explicit sizes(const shape& in)
        : batch{in.numel(0, channel_of(in))},
          channels{in[channel_of(in)]},
          inner{in.numel(channel_of(in) + 1, in.rank())} {}
  };

  /// Updates a running statistic with the mean over the batch of (batch, channels) statistics.
  template <class T>
  void track(const sizes& n, const T* of_samples, T* running) const {
    const T factor = static_cast<T>(momentum);
    for (dim_t k = 0; k < n.channels; ++k) {
      double sum = 0;
      for (dim_t b = 0; b < n.batch; ++b)
        sum += static_cast<double>(of_samples[b * n.channels + k]);
      running[k] = (T{1} - factor) * running[k] +
                   factor * static_cast<T>(sum / static_cast<double>(n.batch));
    }
  }
};

/// Instance norm over [N, num_features, length] or [num_features, length].
template <dim_t C, class... Options>
using instance_norm1d = instance_norm<1, C, Options...>;
/// Instance norm over [N, num_features, height, width] or [num_features, height, width].
template <dim_t C, class... Options>
using instance_norm2d = instance_norm<2, C, Options...>;
/// Instance norm over [N, num_features, depth, height, width], or the same without N.
template <dim_t C, class... Options>
using instance_norm3d = instance_norm<3, C, Options...>;

/// An instance norm whose num_features are inferred from the first input: dimension 1, or 0 if
/// unbatched.
template <class... Options>
using lazy_instance_norm1d = instance_norm<1, lazy, Options...>;
template <class... Options>
using lazy_instance_norm2d = instance_norm<2, lazy, Options...>;
template <class... Options>
using lazy_instance_norm3d = instance_norm<3, lazy, Options...>;

}  // namespace ikebana
