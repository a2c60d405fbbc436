#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/cpu/elementwise.hpp"
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

/// y = (x - mean) / sqrt(variance + eps) * weight + bias for each channel of [N, num_features,
/// spatial...], or of [N, num_features] if Spatial is 1 (Ioffe and Szegedy, Batch Normalization,
/// 2015). O(elements); no allocation.
///
/// In training, mean and (biased) variance are computed over the batch, and the running statistics
/// are updated: running = (1 - momentum) running + momentum batch, where the batch's variance is
/// unbiased. With momentum std::nullopt they are cumulative means over all batches. In evaluation
/// the running statistics are used, or the batch's with track_running_stats<false>. A batch with a
/// single element per channel throws shape_error where the batch's statistics are needed; an empty
/// batch does not update the running statistics.
///
/// Parameters: weight (num_features), bias (num_features) unless affine<false>. Buffers:
/// running_mean, running_var (num_features), num_batches_tracked () unless
/// track_running_stats<false>. C is a number, `lazy` or `dynamic`. Options: affine<bool> (true),
/// track_running_stats<bool> (true).
template <std::size_t Spatial, dim_t C, class... Options>
struct batch_norm {
  static_assert(Spatial >= 1 && Spatial <= 3);
  static_assert(
      detail::option_set<affine<true>, track_running_stats<true>>::template accepts<Options...>,
      "ikebana: batch norm takes the options affine and track_running_stats, each once");

  static constexpr std::string_view kind =
      detail::joined<"batch_norm", detail::digit<Spatial>, "d">;
  static constexpr bool skips_parameter_gradients = true;
  static constexpr bool is_lazy = C == lazy;
  static constexpr kept keeps = kept::input;
  static constexpr bool is_affine = detail::option_or<affine<true>, Options...>::value;
  static constexpr bool tracks = detail::option_or<track_running_stats<true>, Options...>::value;
  static constexpr bool is_channel_norm = tracks;
  static constexpr bool is_stateful = false;
  static constexpr bool takes_function = true;

  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  [[no_unique_address]] extent<C> num_features{};

  constexpr inferred infer(const shape& in) const {
    if (in.rank() != Spatial + 2 && (Spatial > 1 || in.rank() != 2))
      return diagnostic{Spatial == 1 ? says<" expects an input of 2 or {expected} dimensions, got "
                                            "{got} (input {input})">
                                     : says<" expects an input of {expected} dimensions, got {got} "
                                            "(input {input})">,
                        Spatial + 2, static_cast<dim_t>(in.rank()), in};
    if (!fits(num_features.value(), in[1]))
      return diagnostic{says<" expects num_features = {expected}, got {got} (input {input})">,
                        num_features.value(), in[1], in};
    return in;
  }

  /// One element per channel has no variance.
  constexpr diagnostic check(const shape_list& in, bool training) const {
    if ((training || !tracks) && in[0].with(1, 1).numel() == 1)
      return {says<" expects more than 1 value per channel when training, got {got} (input "
                   "{input})">,
              2, 1, in[0]};
    return {};
  }

  template <shape Input>
  constexpr auto become() const {
    return batch_norm<Spatial, Input[1], Options...>{eps, momentum, {}};
  }

  constexpr void bind(const shape_list& in) { num_features.bind(in[0][1]); }

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

  /// Mean and 1 / sqrt(variance + eps) of the batch.
  constexpr std::array<saved_spec, 2> saved(const shape_list& in) const {
    const saved_spec each{0, shape{in[0][1]}};
    return {each, each};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    return in[0].numel();
  }

  void describe(description& d) const {
    d.add("num_features", num_features.value()).add("eps", eps);
    if (momentum)
      d.add("momentum", *momentum);
    else
      d.add("momentum", std::string_view{"cumulative"});
    d.add("affine", is_affine).add("track_running_stats", tracks);
  }

  template <class T>
  void forward(const context<T>& c) const {
    const sizes n(c.input_shape());
    const T epsilon = static_cast<T>(eps);
    if (!uses_batch(c)) {
      cpu::batch_norm_forward_eval<T>(n.batch, n.channels, n.inner, c.input(), weight(c), bias(c),
                                      epsilon, c.buffer(0), c.buffer(1), c.output(), c.function());
      return;
    }
    T factor{};
    if constexpr (tracks) {
      const std::int64_t batches = ++*c.template buffer<std::int64_t>(2);
      factor = static_cast<T>(momentum ? *momentum : 1 / static_cast<double>(batches));
    }
    if (n.batch * n.inner == 0) return;
    cpu::batch_norm_forward_train<T>(n.batch, n.channels, n.inner, c.input(), weight(c), bias(c),
                                     epsilon, c.output(), c.template saved<T>(0),
                                     c.template saved<T>(1), tracks ? c.buffer(0) : nullptr,
                                     tracks ? c.buffer(1) : nullptr, factor, c.function());
  }

  template <class T>
  void backward(const context<T>& c) const {
    const sizes n(c.input_shape());
    T* dweight = is_affine ? c.parameter_gradient(0) : nullptr;
    T* dbias = is_affine ? c.parameter_gradient(1) : nullptr;
    if (n.batch * n.inner == 0) {
      if (dweight != nullptr && !c.accumulate()) {
        cpu::fill<T>(n.channels, dweight, T{0});
        cpu::fill<T>(n.channels, dbias, T{0});
      }
    } else if (!uses_batch(c)) {
      cpu::batch_norm_backward_eval<T>(n.batch, n.channels, n.inner, c.input(), c.output_gradient(),
                                       weight(c), static_cast<T>(eps), c.buffer(0), c.buffer(1),
                                       c.input_gradient(), dweight, dbias, c.accumulate());
    } else {
      cpu::batch_norm_backward<T>(n.batch, n.channels, n.inner, c.input(), c.output_gradient(),
                                  weight(c), c.template saved<T>(0), c.template saved<T>(1),
                                  c.input_gradient(), dweight, dbias, c.accumulate());
    }
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 protected:
  struct sizes {
    dim_t batch, channels, inner;
    explicit sizes(const shape& extents)
        : batch{extents[0]}, channels{extents[1]}, inner{extents.numel(2, extents.rank())} {}
  };

  /// Whether this call normalises by the statistics of the batch.
  template <class T>
  static bool uses_batch(const context<T>& c) {
    return c.training() || !tracks;
  }
  template <class T>
  static const T* weight(const context<T>& c) {
    return is_affine ? c.parameter(0) : nullptr;
  }
  template <class T>
  static const T* bias(const context<T>& c) {
    return is_affine ? c.parameter(1) : nullptr;
  }

 private:
  template <detail::literal... Text>
  static constexpr const char* says =
      detail::joined<"batch_norm", detail::digit<Spatial>, "d", Text...>;
};

/// Batch norm over [N, num_features] or [N, num_features, length].
template <dim_t C, class... Options>
using batch_norm1d = batch_norm<1, C, Options...>;
/// Batch norm over [N, num_features, height, width].
template <dim_t C, class... Options>
using batch_norm2d = batch_norm<2, C, Options...>;
/// Batch norm over [N, num_features, depth, height, width].
template <dim_t C, class... Options>
using batch_norm3d = batch_norm<3, C, Options...>;

/// A batch norm whose num_features come from the first input.
template <class... Options>
using lazy_batch_norm1d = batch_norm<1, lazy, Options...>;
template <class... Options>
using lazy_batch_norm2d = batch_norm<2, lazy, Options...>;
template <class... Options>
using lazy_batch_norm3d = batch_norm<3, lazy, Options...>;

}  // namespace ikebana
