#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "ikebana/optim/optimizer.hpp"
#include "ikebana/optim/schedule/cyclic_lr.hpp"

namespace ikebana {

/// From the rate of the optimizer to swa_lr in anneal_epochs steps, and then constant, as SWALR: to
/// be stepped once an epoch from where weights are averaged on (averaged_model). swa_lr has no
/// default.
struct swa_lr {
  double swa_lr = std::numeric_limits<double>::quiet_NaN();
  std::int64_t anneal_epochs = 10;
  annealing anneal_strategy = annealing::cos;

  void check() const {
    detail::check_option(swa_lr >= 0, "swa_lr", "swa_lr", swa_lr);
    detail::check_option(anneal_epochs >= 0, "swa_lr", "anneal_epochs",
                         static_cast<double>(anneal_epochs));
  }
  double lr(double initial, std::int64_t step) const {
    if (step >= anneal_epochs) return swa_lr;
    const double t = static_cast<double>(step) / static_cast<double>(anneal_epochs);
    const double share =
        anneal_strategy == annealing::linear ? t : (1 - std::cos(std::numbers::pi * t)) / 2;
    return swa_lr * share + initial * (1 - share);
  }
};

}  // namespace ikebana
