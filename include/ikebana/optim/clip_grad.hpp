#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <span>
#include <string>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/model/parameter_shards.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana {

struct clip_grad_norm_options {
  double norm_type = 2;  ///< Or infinity: the largest magnitude.
  bool error_if_nonfinite = false;
};

namespace detail {

/// The sum of |x|^p, or for p = infinity the largest |x|: joined over parts by + or max.
template <class T>
double power_sum(std::span<const T> x, double p) {
  double sum = 0;
  if (p == 2) {
    constexpr std::size_t block = 4096;
    for (std::size_t i = 0; i < x.size(); i += block) {
      const std::size_t n = x.size() - i < block ? x.size() - i : block;
      sum += static_cast<double>(cpu::squared_norm<T>(static_cast<dim_t>(n), x.data() + i));
    }
  } else if (std::isinf(p)) {
    for (T v : x) {
      const double a = std::fabs(static_cast<double>(v));
      if (std::isnan(a)) return a;
      sum = a > sum ? a : sum;
    }
  } else {
    for (T v : x) sum += std::pow(std::fabs(static_cast<double>(v)), p);
  }
  return sum;
}

/// Of the gradients of all elements; of each rank's own, where ranks share the optimizer's work.
template <class Model>
double gradient_norm(Model& model, double p) {
  using T = typename Model::value_type;
  const std::span<const T> gradients = model.gradients();
  double all = 0;
  if constexpr (sharded_optimizable<Model>) {
    parameter_shards<T>& shards = *model.shards();
    bool undefined = false;
    for (const parameter_range& r : shards.ranges()) {
      const double part = power_sum<T>(
          gradients.subspan(static_cast<std::size_t>(r.begin), static_cast<std::size_t>(r.size())),
          p);
      if (!std::isinf(p))
        all += part;
      else if (std::isnan(part))
        undefined = true;
      else
        all = part > all ? part : all;
    }
    if (std::isinf(p)) {
      all = shards.max(all);
      if (shards.sum(undefined) > 0) all = std::numeric_limits<double>::quiet_NaN();
    } else {
      all = shards.sum(all);
    }
  } else {
    all = power_sum<T>(gradients, p);
  }
  return p == 2 ? std::sqrt(all) : std::isinf(p) ? all : std::pow(all, 1 / p);
}

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
    const double norm = detail::gradient_norm(model, p);
    if (options.error_if_nonfinite && !std::isfinite(norm)) {
      char digits[32];
      std::snprintf(digits, sizeof digits, "%g", p);
      throw error(std::string("clip_grad_norm: the total norm of order ") + digits +
                  " of the gradients is not finite, so they cannot be clipped; without "
                  "error_if_nonfinite they are scaled by it anyway");
    }
    const double factor = max_norm / (norm + 1e-6);
    if (!(factor >= 1)) {
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
