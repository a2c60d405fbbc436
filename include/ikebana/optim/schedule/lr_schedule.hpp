#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "ikebana/optim/optimizer.hpp"

// Learning rates as functions of the step: the classes of PyTorch 1.13's
// torch/optim/lr_scheduler.py, whose formulas are those of `_get_closed_form_lr` where it has one.
// A schedule is a value that computes the rate of any step from the initial rate; lr_scheduler
// applies it to an optimizer.

namespace ikebana {

/// A learning rate as a function of the initial one and the number of steps made. `check()` throws
/// error for invalid options.
template <class S>
concept lr_schedule = requires(const S& s, double initial, std::int64_t step) {
  { s.lr(initial, step) } -> std::convertible_to<double>;
  s.check();
};

/// A schedule that ends by itself after `duration()` steps.
template <class S>
concept finite_lr_schedule = lr_schedule<S> && requires(const S& s) {
  { s.duration() } -> std::convertible_to<std::int64_t>;
};

/// The initial rate times `factor(step)`, as LambdaLR: `lambda_lr{[](std::int64_t step) { return
/// 1 / std::sqrt(1.0 + step); }}`. PyTorch's name of the function is lr_lambda.
template <std::invocable<std::int64_t> F>
struct lambda_lr {
  F lr_lambda;

  void check() const {}
  double lr(double initial, std::int64_t step) const {
    return initial * static_cast<double>(lr_lambda(step));
  }
};
template <class F>
lambda_lr(F) -> lambda_lr<F>;

/// The initial rate times `factor(1) * ... * factor(step)`, as MultiplicativeLR. Remembers the
/// product of the last step asked for, so that the next one takes one call; an earlier step starts
/// from 1 again.
template <std::invocable<std::int64_t> F>
class multiplicative_lr {
 public:
  constexpr explicit multiplicative_lr(F lr_lambda) : lr_lambda_{lr_lambda} {}

  void check() const {}
  double lr(double initial, std::int64_t step) const {
    if (step < step_) {
      step_ = 0;
      product_ = 1;
    }
    while (step_ < step) product_ *= static_cast<double>(lr_lambda_(++step_));
    return initial * product_;
  }

 private:
  F lr_lambda_;
  mutable std::int64_t step_ = 0;
  mutable double product_ = 1;
};

/// Multiplies the rate by gamma every step_size steps, as StepLR. step_size has no default.
struct step_lr {
  std::int64_t step_size = 0;
  double gamma = 0.1;

  void check() const {
    detail::check_option(step_size > 0, "step_lr", "step_size", static_cast<double>(step_size));
  }
  double lr(double initial, std::int64_t step) const {
    return initial * std::pow(gamma, static_cast<double>(step / step_size));
  }
};

/// Multiplies the rate by gamma at each milestone, as MultiStepLR. The order of milestones does not
/// matter; one that occurs twice counts twice.
struct multi_step_lr {
  std::vector<std::int64_t> milestones{};
  double gamma = 0.1;

  void check() const {}
  double lr(double initial, std::int64_t step) const {
    int passed = 0;
    for (std::int64_t m : milestones) passed += m <= step;
    return initial * std::pow(gamma, passed);
  }
};

/// The rate times `factor` for total_iters steps, then the rate itself, as ConstantLR.
struct constant_lr {
  double factor = 1.0 / 3;
  std::int64_t total_iters = 5;

  void check() const {
    detail::check_option(factor >= 0 && factor <= 1, "constant_lr", "factor", factor);
    detail::check_option(total_iters >= 0, "constant_lr", "total_iters",
                         static_cast<double>(total_iters));
  }
  std::int64_t duration() const { return total_iters; }
  double lr(double initial, std::int64_t step) const {
    return step < total_iters ? initial * factor : initial;
  }
};

/// The rate times a factor that changes linearly from start_factor to end_factor in total_iters
/// steps and then stays, as LinearLR: a warm-up.
struct linear_lr {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  std::int64_t total_iters = 5;

  void check() const {
    detail::check_option(start_factor >= 0 && start_factor <= 1, "linear_lr", "start_factor",
                         start_factor);
    detail::check_option(end_factor >= 0 && end_factor <= 1, "linear_lr", "end_factor", end_factor);
    detail::check_option(total_iters >= 0, "linear_lr", "total_iters",
                         static_cast<double>(total_iters));
  }
  std::int64_t duration() const { return total_iters; }
  double lr(double initial, std::int64_t step) const {
    if (step >= total_iters) return initial * end_factor;
    return initial * (start_factor + (end_factor - start_factor) * static_cast<double>(step) /
                                         static_cast<double>(total_iters));
  }
};

/// Multiplies the rate by gamma at every step, as ExponentialLR. gamma has no default.
struct exponential_lr {
  double gamma = std::numeric_limits<double>::quiet_NaN();

  void check() const { detail::check_option(gamma >= 0, "exponential_lr", "gamma", gamma); }
  double lr(double initial, std::int64_t step) const {
    return initial * std::pow(gamma, static_cast<double>(step));
  }
};

/// The rate falls to 0 in total_iters steps as (1 - step / total_iters)^power, as PolynomialLR.
struct polynomial_lr {
  std::int64_t total_iters = 5;
  double power = 1;

  void check() const {
    detail::check_option(total_iters > 0, "polynomial_lr", "total_iters",
                         static_cast<double>(total_iters));
  }
  std::int64_t duration() const { return total_iters; }
  double lr(double initial, std::int64_t step) const {
    const auto rest = static_cast<double>(step < total_iters ? total_iters - step : 0);
    return initial * std::pow(rest / static_cast<double>(total_iters), power);
  }
};

/// Half a cosine from the initial rate to eta_min in t_max steps, and back in the next t_max, as
/// CosineAnnealingLR (Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts,
/// 2017, without restarts). t_max has no default.
struct cosine_annealing_lr {
  std::int64_t t_max = 0;
  double eta_min = 0;

  void check() const {
    detail::check_option(t_max > 0, "cosine_annealing_lr", "t_max", static_cast<double>(t_max));
  }
  std::int64_t duration() const { return t_max; }
  double lr(double initial, std::int64_t step) const {
    const double angle =
        std::numbers::pi * static_cast<double>(step % (2 * t_max)) / static_cast<double>(t_max);
    return eta_min + (initial - eta_min) * (1 + std::cos(angle)) / 2;
  }
};

/// Half a cosine from the initial rate to eta_min, again and again: first in t_0 steps, then in
/// t_mult times as many each time, as CosineAnnealingWarmRestarts (Loshchilov and Hutter, SGDR,
/// 2017). t_0 has no default.
struct cosine_annealing_warm_restarts {
  std::int64_t t_0 = 0;
  std::int64_t t_mult = 1;
  double eta_min = 0;

  void check() const {
    detail::check_option(t_0 > 0, "cosine_annealing_warm_restarts", "t_0",
                         static_cast<double>(t_0));
    detail::check_option(t_mult > 0, "cosine_annealing_warm_restarts", "t_mult",
                         static_cast<double>(t_mult));
  }
  double lr(double initial, std::int64_t step) const {
    std::int64_t length = t_0;
    if (t_mult == 1) {
      step %= t_0;
    } else {
      for (; step >= length; length *= t_mult) step -= length;
    }
    const double angle = std::numbers::pi * static_cast<double>(step) / static_cast<double>(length);
    return eta_min + (initial - eta_min) * (1 + std::cos(angle)) / 2;
  }
};

}  // namespace ikebana
