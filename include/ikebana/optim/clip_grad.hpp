#pragma once

#include <cmath>
#include <span>
#include <string>
#include <type_traits>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/model/parameter_shards.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/optim/gradient_norm.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana {

/// Options of clip_grad_norm.
struct clip_grad_norm_options {
  double norm_type = 2;             ///< Above 0; infinity: the largest magnitude.
  bool error_if_nonfinite = false;  ///< Throws error if the norm is not finite.
};

namespace detail {

/// Whether gradients are consumed during backward, before they could be clipped.
template <class M>
inline constexpr bool steps_while_backward_runs = requires {
  requires M::steps_in_backward;
};

namespace misuse {
IKEBANA_MISUSE(clip_grad_needs_an_initialized_model,
               "clip_grad_norm and clip_grad_value need an initialized model, not const: "
               "initialize<T, shape>(module, seed) gives one");
IKEBANA_MISUSE(clip_grad_with_optimizer_in_backward,
               "clip_grad_norm and clip_grad_value need all gradients before any step, and with "
               "optimizer_in_backward there is no such moment");
IKEBANA_MISUSE(clip_grad_norm_takes_the_largest_norm,
               "clip_grad_norm takes a model and the largest norm: clip_grad_norm(model, 1.0)");
}  // namespace misuse

template <class M>
inline constexpr bool clips = optimizable<M> && !steps_while_backward_runs<M>;
template <class M>
using clip_misuse = std::conditional_t<steps_while_backward_runs<M>,
                                       misuse::clip_grad_with_optimizer_in_backward<later<M>>,
                                       misuse::clip_grad_needs_an_initialized_model<later<M>>>;

/// `caller` is named by errors.
template <class Model>
double total_norm(Model& model, const clip_grad_norm_options& options, const char* caller) {
  using T = typename Model::value_type;
  const double p = options.norm_type;
  if (!(p > 0)) throw error(std::string(caller) + " expects a norm type above 0");
  parameter_shards<T>* shards = nullptr;
  if constexpr (sharded_optimizable<Model>) shards = model.shards();
  const double norm = gradient_norm<T>(model.gradients(), shards, p, rows_of(model));
  if (options.error_if_nonfinite && !std::isfinite(norm)) refuse_norm(caller, p);
  return norm;
}

}  // namespace detail

/// The norm of the gradients of all parameters, taken as one vector (torch.nn.utils.get_total_norm
/// of the gradients). For a replicated model, that of the averaged gradients, the same on every
/// rank. With shard_optimizer each rank has a part of them: all ranks must call it, and the norm
/// may differ in the last digit from the one without. Throws error if the norm type is not above 0
/// or, if requested, if the norm is not finite; communication_error. O(parameters); no allocation.
template <class Model>
requires(detail::clips<Model>) double get_total_norm(Model& model,
                                                     const clip_grad_norm_options& options = {}) {
  return detail::total_norm(model, options, "get_total_norm");
}
template <class Model>
requires(!detail::clips<Model>) auto get_total_norm(const Model&,
                                                    const clip_grad_norm_options& = {})
    -> decltype(detail::refuse_as<detail::clip_misuse<Model>>());

/// Scales the gradients of all parameters, whose norm is total_norm, by max_norm / (total_norm +
/// 1e-6) if that is below 1 (torch.nn.utils.clip_grads_with_norm_): for a norm over several models,
/// or one that was measured before. O(parameters); no allocation.
template <class Model>
requires(detail::clips<Model>) void clip_grads_with_norm(Model& model, double max_norm,
                                                         double total_norm) {
  using T = typename Model::value_type;
  const double factor = detail::clip_factor(total_norm, max_norm);
  if (factor == 1) return;
  const std::span<T> gradients = model.gradients();
  detail::for_each_nonzero(
      detail::rows_of(model), 0, static_cast<dim_t>(gradients.size()), [&](dim_t begin, dim_t end) {
        cpu::scale<T>(end - begin, static_cast<T>(factor), gradients.data() + begin);
      });
}
template <class Model>
requires(!detail::clips<Model>) auto clip_grads_with_norm(const Model&, double, double)
    -> decltype(detail::refuse_as<detail::clip_misuse<Model>>());

/// Scales the gradients of all parameters so that their norm, taken as one vector, is at most
/// max_norm, as get_total_norm and clip_grads_with_norm do. Returns the norm before scaling
/// (torch.nn.utils.clip_grad_norm_). Called between backward and the optimizer's step:
///
///     net.loss_backward(x, y, loss);
///     ike::clip_grad_norm(net, 1.0);
///     optimizer.step();
///
/// An optimizer's option max_norm does the same without a separate pass over the gradients, and
/// leaves the stored gradients unchanged. Throws as get_total_norm, before anything has changed.
template <class Model>
requires(detail::clips<Model>) double clip_grad_norm(Model& model, double max_norm,
                                                     const clip_grad_norm_options& options = {}) {
  const double norm = detail::total_norm(model, options, "clip_grad_norm");
  clip_grads_with_norm(model, max_norm, norm);
  return norm;
}
template <class Model>
requires(!detail::clips<Model>) auto clip_grad_norm(const Model&, double,
                                                    const clip_grad_norm_options& = {})
    -> decltype(detail::refuse_as<detail::clip_misuse<Model>>());
template <class Model>
auto clip_grad_norm(const Model&)
    -> decltype(detail::refuse_for<detail::misuse::clip_grad_norm_takes_the_largest_norm, Model>());

/// Clamps every element of the gradients to [-value, value] (torch.nn.utils.clip_grad_value_). No
/// communication, no allocation; O(parameters).
template <class Model>
requires(detail::clips<Model>) void clip_grad_value(Model& model, double value) {
  using T = typename Model::value_type;
  const T most = static_cast<T>(value);
  T* const g = model.gradients().data();
  detail::for_each_nonzero(detail::rows_of(model), 0, static_cast<dim_t>(model.gradients().size()),
                           [&](dim_t begin, dim_t end) {
                             for (dim_t i = begin; i < end; ++i)
                               g[i] = g[i] > most ? most : g[i] < -most ? -most : g[i];
                           });
}
template <class Model>
requires(!detail::clips<Model>) auto clip_grad_value(const Model&, double)
    -> decltype(detail::refuse_as<detail::clip_misuse<Model>>());

}  // namespace ikebana
