#pragma once

#include <cmath>
#include <span>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/model/parameter_shards.hpp"
#include "ikebana/optim/gradient_norm.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana {

struct clip_grad_norm_options {
  double norm_type = 2;  ///< Or infinity: the largest magnitude.
  bool error_if_nonfinite = false;
};

namespace detail {

/// Whether gradients are used up before anybody could clip them.
template <class M>
inline constexpr bool steps_while_backward_runs = requires {
  requires M::steps_in_backward;
};

}  // namespace detail

/// Scales the gradients of all parameters so that their norm, taken as of one vector, is at most
/// max_norm: by max_norm / (norm + 1e-6) where that is below 1. Returns the norm before
/// (torch.nn.utils.clip_grad_norm_). Between backward and the optimizer's step:
///
///     net.loss_backward(x, y, loss);
///     ike::clip_grad_norm(net, 1.0);
///     optimizer.step();
///
/// An optimizer does the same without a pass of its own over the gradients, which stay as they are,
/// if its option max_norm is set.
///
/// The norm of a replicated model is that of its averaged gradients, the same on every rank. With
/// shard_optimizer each rank has a part of them: all ranks must call it, and the norm may differ in
/// the last place from that without. Throws error for a norm type that is not above 0, and, if
/// asked, for a norm that is not finite, before anything has changed; communication_error. Does not
/// allocate. O(parameters).
template <class Model>
double clip_grad_norm(Model& model, double max_norm, const clip_grad_norm_options& options = {}) {
  static_assert(optimizable<Model>,
                "ikebana: clip_grad_norm needs an initialized model: initialize<T, shape>(module, "
                "seed) gives one");
  static_assert(!detail::steps_while_backward_runs<Model>,
                "ikebana: clip_grad_norm needs all gradients before any step, and with "
                "optimizer_in_backward there is no such moment");
  if constexpr (optimizable<Model> && !detail::steps_while_backward_runs<Model>) {
    using T = typename Model::value_type;
    const double p = options.norm_type;
    if (!(p > 0)) throw error("clip_grad_norm expects a norm type above 0");
    parameter_shards<T>* shards = nullptr;
    if constexpr (sharded_optimizable<Model>) shards = model.shards();
    const double norm = detail::gradient_norm<T>(model.gradients(), shards, p);
    if (options.error_if_nonfinite && !std::isfinite(norm))
      detail::refuse_norm("clip_grad_norm", p);
    const double factor = detail::clip_factor(norm, max_norm);
    if (factor != 1) {
      const std::span<T> gradients = model.gradients();
      cpu::scale<T>(static_cast<dim_t>(gradients.size()), static_cast<T>(factor), gradients.data());
    }
    return norm;
  } else {
    return 0;
  }
}

/// Limits every element of the gradients to [-value, value] (torch.nn.utils.clip_grad_value_). Does
/// not allocate or communicate. O(parameters).
template <class Model>
void clip_grad_value(Model& model, double value) {
  static_assert(optimizable<Model>,
                "ikebana: clip_grad_value needs an initialized model: initialize<T, shape>(module, "
                "seed) gives one");
  static_assert(!detail::steps_while_backward_runs<Model>,
                "ikebana: clip_grad_value needs the gradients before any step, and with "
                "optimizer_in_backward there is no such moment");
  if constexpr (optimizable<Model> && !detail::steps_while_backward_runs<Model>) {
    using T = typename Model::value_type;
    const T most = static_cast<T>(value);
    for (T& g : model.gradients()) g = g > most ? most : g < -most ? -most : g;
  }
}

}  // namespace ikebana
