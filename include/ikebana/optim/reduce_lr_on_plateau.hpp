#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "ikebana/core/dependent.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/optim/lr_scheduler.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana {

/// Which values of a metric are better.
enum class metric_mode : unsigned char { min, max };
/// What a metric must improve by: a share of the best value, or an amount.
enum class threshold_mode : unsigned char { rel, abs };

/// Options of reduce_lr_on_plateau: PyTorch's, with its defaults.
struct reduce_lr_on_plateau_options {
  metric_mode mode = metric_mode::min;
  double factor = 0.1;
  std::int64_t patience = 10;
  double threshold = 1e-4;
  ikebana::threshold_mode threshold_mode = ikebana::threshold_mode::rel;
  std::int64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;  ///< A smaller change of the rate is not made.
};

namespace detail::misuse {
IKEBANA_MISUSE(step_takes_the_metric,
               "step of reduce_lr_on_plateau takes the metric of the epoch: "
               "schedule.step(validation_loss)");
}  // namespace detail::misuse

/// Multiplies the rate by `factor` when a metric has not improved for more than `patience` epochs,
/// as ReduceLROnPlateau: `reduce_lr_on_plateau schedule{optimizer, {.patience = 3}};`, then
/// `schedule.step(validation_loss)` after each epoch. The optimizer must outlive it, and not move.
/// Does not allocate.
template <has_learning_rate Optimizer>
class reduce_lr_on_plateau {
 public:
  /// Throws error unless 0 <= factor < 1.
  explicit reduce_lr_on_plateau(Optimizer& optimizer,
                                const reduce_lr_on_plateau_options& options = {})
      : optimizer_{&optimizer}, options_{options} {
    detail::check_option(options.factor >= 0 && options.factor < 1, "reduce_lr_on_plateau",
                         "factor", options.factor);
    last_lr_ = static_cast<double>(optimizer.options().lr);
    last_group_lrs_ = detail::group_lrs(optimizer);
    if (options.mode == metric_mode::max) best_ = -best_;
  }

  /// Takes the metric of an epoch. A NaN is no improvement.
  void step(double metric) {
    ++last_epoch_;
    if (is_better(metric)) {
      best_ = metric;
      num_bad_epochs_ = 0;
    } else {
      ++num_bad_epochs_;
    }
    if (cooldown_counter_ > 0) {
      --cooldown_counter_;
      num_bad_epochs_ = 0;
    }
    if (num_bad_epochs_ > options_.patience) {
      reduce();
      cooldown_counter_ = options_.cooldown;
      num_bad_epochs_ = 0;
    }
    last_lr_ = static_cast<double>(optimizer_->options().lr);
    detail::for_each_group_lr(*optimizer_, last_group_lrs_.size(),
                              [&](double lr, std::size_t i) { last_group_lrs_[i] = lr; });
  }

  template <class O = Optimizer>
  auto step() -> decltype(detail::refuse_for<detail::misuse::step_takes_the_metric, O>());

  std::int64_t last_epoch() const { return last_epoch_; }
  double get_last_lr() const { return last_lr_; }
  double best() const { return best_; }
  std::int64_t num_bad_epochs() const { return num_bad_epochs_; }

  /// What a checkpoint holds of it. After writing to it, `restored()`.
  std::array<optimizer_state, 6> state() {
    return {optimizer_state::of("last_epoch", &last_epoch_, 1),
            optimizer_state::of("num_bad_epochs", &num_bad_epochs_, 1),
            optimizer_state::of("cooldown_counter", &cooldown_counter_, 1),
            optimizer_state::of("best", &best_, 1),
            optimizer_state::of("last_lr", &last_lr_, 1),
            optimizer_state::of("last_group_lr", last_group_lrs_.data(), last_group_lrs_.size(),
                                !last_group_lrs_.empty())};
  }
  /// Sets the rates that were written to the state.
  void restored() {
    set(last_lr_);
    detail::for_each_group_lr(*optimizer_, last_group_lrs_.size(),
                              [&](double& lr, std::size_t i) { lr = last_group_lrs_[i]; });
  }

 private:
  bool is_better(double metric) const {
    const double t = options_.threshold;
    const bool least = options_.mode == metric_mode::min;
    if (options_.threshold_mode == ikebana::threshold_mode::rel)
      return least ? metric < best_ * (1 - t) : metric > best_ * (1 + t);
    return least ? metric < best_ - t : metric > best_ + t;
  }
  void reduce() {
    const auto old = static_cast<double>(optimizer_->options().lr);
    set(reduced(old));
    detail::for_each_group_lr(*optimizer_, last_group_lrs_.size(),
                              [&](double& lr, std::size_t) { lr = reduced(lr); });
  }
  double reduced(double old) const {
    const double lr = std::max(old * options_.factor, options_.min_lr);
    return old - lr > options_.eps ? lr : old;
  }
  void set(double lr) {
    auto& option = optimizer_->options().lr;
    option = static_cast<std::remove_reference_t<decltype(option)>>(lr);
  }

  Optimizer* optimizer_;
  reduce_lr_on_plateau_options options_;
  double best_ = std::numeric_limits<double>::infinity();
  double last_lr_ = 0;
  std::vector<detail::dependent<double, Optimizer>> last_group_lrs_;
  std::int64_t num_bad_epochs_ = 0;
  std::int64_t cooldown_counter_ = 0;
  std::int64_t last_epoch_ = 0;
};
template <class Optimizer>
reduce_lr_on_plateau(Optimizer&) -> reduce_lr_on_plateau<Optimizer>;
template <class Optimizer>
reduce_lr_on_plateau(Optimizer&, const reduce_lr_on_plateau_options&)
    -> reduce_lr_on_plateau<Optimizer>;

}  // namespace ikebana
