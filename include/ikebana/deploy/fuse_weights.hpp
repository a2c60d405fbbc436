#pragma once

#include <cmath>
#include <cstddef>
#include <optional>
#include <type_traits>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/shape_error.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/core/throw_error.hpp"

// The weights of a linear module or a convolution that computes what one and a batch norm after it
// compute in evaluation. `freeze` does so for all such pairs of a network.
namespace ikebana {

namespace detail {

/// Multiplies each channel of a weight (outer, channels, inner) by weight / sqrt(variance + eps),
/// and moves the bias accordingly; without scale and shift, null, they are 1 and 0.
template <class T>
void fuse_norm(dim_t outer, dim_t channels, dim_t inner, const T* mean, const T* variance,
               double eps, const T* scale, const T* shift, T* weight, T* bias) {
  for (dim_t c = 0; c < channels; ++c) {
    double factor = 1 / std::sqrt(static_cast<double>(variance[c]) + eps);
    if (scale != nullptr) factor *= static_cast<double>(scale[c]);
    for (dim_t o = 0; o < outer; ++o) {
      T* const w = weight + (o * channels + c) * inner;
      for (dim_t i = 0; i < inner; ++i) w[i] = static_cast<T>(static_cast<double>(w[i]) * factor);
    }
    bias[c] =
        static_cast<T>((static_cast<double>(bias[c]) - static_cast<double>(mean[c])) * factor +
                       (shift == nullptr ? 0 : static_cast<double>(shift[c])));
  }
}

template <class X>
inline constexpr bool is_left_out = std::is_same_v<std::remove_cvref_t<X>, std::nullopt_t>;

/// Whether X is left out, or has a T for each channel.
template <class T, class X>
constexpr bool is_of_channels() {
  if constexpr (is_left_out<X>) {
    return true;
  } else if constexpr (tensor_like<X>) {
    using tensor = std::remove_cvref_t<X>;
    return std::is_same_v<std::remove_const_t<typename tensor::value_type>, T> &&
           tensor::static_shape.rank() == 1;
  } else {
    return false;
  }
}

template <class T, class X>
const T* data_of_channels(const X& x, dim_t channels) {
  if constexpr (is_left_out<X>) {
    return nullptr;
  } else {
    if (const shape given = x.extents(); given[0] != channels)
      throw_error(shape_error(
          diagnostic{"a batch norm is fused into weights of {expected} channels, got one of {got}",
                     channels, given[0]}));
    return x.data();
  }
}

}  // namespace detail

/// Weight and bias, the results of fuse_conv_bn_weights and fuse_linear_bn_weights.
template <class T, shape Weight>
struct fused_weights {
  tensor<T, Weight> weight;
  tensor<T, shape{dynamic}> bias;
};

/// Weight and bias of the convolution that computes what one of conv_w, [out, in, ..], and conv_b,
/// [out], and then a batch norm in evaluation compute: `auto [w, b] = fuse_conv_bn_weights(conv_w,
/// conv_b, mean, variance, 1e-5, bn_w, bn_b)`. std::nullopt stands for a bias of zeros, and for
/// weights and biases of a norm without. `transpose`: the weight is that of a transposed
/// convolution, [in, out, ..]. PyTorch's torch.nn.utils.fuse_conv_bn_weights. Throws shape_error if
/// the numbers of channels differ. O(elements); allocates the results.
template <tensor_like W, class B, class Mean, class Variance, class Scale, class Shift>
auto fuse_conv_bn_weights(const W& conv_w, const B& conv_b, const Mean& bn_rm,
                          const Variance& bn_rv, double bn_eps, const Scale& bn_w,
                          const Shift& bn_b, bool transpose = false) {
  using T = std::remove_const_t<typename W::value_type>;
  static_assert(std::is_floating_point_v<T> && W::static_shape.rank() >= 2,
                "ikebana: fuse_conv_bn_weights takes a weight of float or double, with at least 2 "
                "dimensions");
  static_assert(detail::is_of_channels<T, B>() && detail::is_of_channels<T, Mean>() &&
                    detail::is_of_channels<T, Variance>() && detail::is_of_channels<T, Scale>() &&
                    detail::is_of_channels<T, Shift>() && !detail::is_left_out<Mean> &&
                    !detail::is_left_out<Variance>,
                "ikebana: fuse_conv_bn_weights takes (weight, bias, mean, variance, eps, weight, "
                "bias), of which all but the first are vectors of the weight's type, and biases "
                "and the norm's weight may be std::nullopt");
  const shape extents = conv_w.extents();
  const std::size_t dim = transpose ? 1 : 0;
  const dim_t channels = extents[dim];
  const T* const bias = detail::data_of_channels<T>(conv_b, channels);
  const T* const mean = detail::data_of_channels<T>(bn_rm, channels);
  const T* const variance = detail::data_of_channels<T>(bn_rv, channels);
  const T* const scale = detail::data_of_channels<T>(bn_w, channels);
  const T* const shift = detail::data_of_channels<T>(bn_b, channels);
  fused_weights<T, W::static_shape> out{tensor<T, W::static_shape>(extents),
                                        tensor<T, shape{dynamic}>(shape{channels})};
  for (dim_t i = 0; i < extents.numel(); ++i) out.weight.data()[i] = conv_w.data()[i];
  for (dim_t c = 0; c < channels; ++c) out.bias[c] = bias == nullptr ? T{0} : bias[c];
  detail::fuse_norm<T>(extents.numel(0, dim), channels, extents.numel(dim + 1, extents.rank()),
                       mean, variance, bn_eps, scale, shift, out.weight.data(), out.bias.data());
  return out;
}

/// The same of a linear module: weight [out, in], as PyTorch's
/// torch.nn.utils.fuse_linear_bn_weights.
template <tensor_like W, class B, class Mean, class Variance, class Scale, class Shift>
auto fuse_linear_bn_weights(const W& linear_w, const B& linear_b, const Mean& bn_rm,
                            const Variance& bn_rv, double bn_eps, const Scale& bn_w,
                            const Shift& bn_b) {
  static_assert(W::static_shape.rank() == 2,
                "ikebana: fuse_linear_bn_weights takes a weight of 2 dimensions");
  return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b);
}

}  // namespace ikebana
