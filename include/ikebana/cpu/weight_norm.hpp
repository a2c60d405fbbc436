#pragma once

#include <cmath>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/layer_norm.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/weight_norm-inl.hpp"
#define IKEBANA_CPU_SETS 1
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// Reparametrizations of a weight of (outer, channels, inner) by its channels. None allocates or
/// throws.
namespace ikebana::cpu {

/// norms[c] = the 2-norm of channel c of v. The same bits under every instruction set, which has no
/// kernel of its own here: what is initialised by it does not depend on the machine.
template <class T>
[[gnu::noinline]] void channel_norms(dim_t outer, dim_t channels, dim_t inner, const T* v,
                                     T* norms) {
  for (dim_t c = 0; c < channels; ++c) {
    double sums[8]{};
    for (dim_t o = 0; o < outer; ++o) {
      const T* row = v + (o * channels + c) * inner;
      for (dim_t i = 0; i < inner; ++i)
        sums[i % 8] += static_cast<double>(row[i]) * static_cast<double>(row[i]);
    }
    norms[c] = static_cast<T>(std::sqrt(((sums[0] + sums[1]) + (sums[2] + sums[3])) +
                                        ((sums[4] + sums[5]) + (sums[6] + sums[7]))));
  }
}

/// w = v g / norm by channels (Salimans, Kingma, Weight Normalization, 2016).
template <class T>
void weight_norm_forward(dim_t outer, dim_t channels, dim_t inner, const T* v, const T* g,
                         const T* norms, T* w) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(scale_channels<T>)(outer, channels, inner, v, g, norms, w);
}
/// The gradients of v and g from that of w, through the norms.
template <class T>
void weight_norm_backward(dim_t outer, dim_t channels, dim_t inner, const T* v, const T* g,
                          const T* norms, const T* dw, T* dv, T* dg, bool accumulate) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(scale_channels_backward<T>)
  (outer, channels, inner, v, g, norms, dw, dv, dg, accumulate);
}

/// One power iteration on the matrix W of (channels, outer x inner): v = normalize(W^T u), u =
/// normalize(W v), where normalize(x) is x / max(|x|, eps).
template <class T>
void power_iteration(dim_t outer, dim_t channels, dim_t inner, const T* w, T eps, T* u, T* v) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(iterate_power<T>)(outer, channels, inner, w, eps, u, v);
}
/// u^T W v.
template <class T>
T spectral_sigma(dim_t outer, dim_t channels, dim_t inner, const T* w, const T* u, const T* v) {
  return IKEBANA_CPU_DISPATCH_ONE_WIDTH(bilinear_form<T>)(outer, channels, inner, w, u, v);
}
/// y = w / sigma.
template <class T>
void spectral_norm_forward(dim_t n, const T* w, T sigma, T* y) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(divide_by_sigma<T>)(n, w, sigma, y);
}
/// The gradient of W from that of W / (u^T W v), u and v constant (Miyato et al., Spectral
/// Normalization for Generative Adversarial Networks, 2018).
template <class T>
void spectral_norm_backward(dim_t outer, dim_t channels, dim_t inner, const T* w, const T* u,
                            const T* v, T sigma, const T* dnormalized, T* dw, bool accumulate) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(divide_by_sigma_backward<T>)
  (outer, channels, inner, w, u, v, sigma, dnormalized, dw, accumulate);
}

IKEBANA_CPU_KERNEL(weight_norm_forward, weight_norm_backward, power_iteration, spectral_sigma,
                   spectral_norm_forward, spectral_norm_backward)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
