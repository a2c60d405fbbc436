#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/dependent.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/optim/group.hpp"
#include "ikebana/optim/optimizer.hpp"
#include "ikebana/optim/schedule/combined_lr.hpp"
#include "ikebana/optim/schedule/lr_schedule.hpp"

namespace ikebana {

/// An optimizer whose learning rate can be changed between steps.
template <class O>
concept has_learning_rate = requires(O& o) {
  { o.options().lr } -> std::convertible_to<double>;
};

namespace detail::misuse {
IKEBANA_MISUSE(lr_scheduler_takes_an_optimizer_and_a_schedule,
               "lr_scheduler takes an optimizer and a schedule: lr_scheduler{optimizer, "
               "step_lr{.step_size = 30}}");
}

namespace detail {

/// The option that PyTorch's schedules call momentum: `momentum`, or the first beta.
template <class Options>
auto* momentum_option(Options& options) {
  if constexpr (requires { options.momentum; })
    return &options.momentum;
  else if constexpr (requires { options.betas.first; })
    return &options.betas.first;
  else
    return static_cast<double*>(nullptr);
}

/// The learning rates of the groups that have their own.
template <class Optimizer>
std::vector<dependent<double, Optimizer>> group_lrs(Optimizer& optimizer) {
  std::vector<dependent<double, Optimizer>> all;
  for (const parameter_group& g : groups_of(optimizer))
    if (g.options.lr) all.push_back(*g.options.lr);
  return all;
}
/// Calls f(lr, i) for them. Does not allocate.
template <class Optimizer, class F>
void for_each_group_lr(Optimizer& optimizer, std::size_t count, F&& f) {
  std::size_t i = 0;
  for (parameter_group& g : groups_of(optimizer))
    if (g.options.lr && i < count) f(*g.options.lr, i++);
}

}  // namespace detail

/// Applies a schedule to an optimizer: `lr_scheduler schedule{optimizer, cosine_annealing_lr{.t_max
/// = 100}};`, then `schedule.step()` after each step of the optimizer, or each epoch. The rate that
/// the optimizer has at first is the schedule's initial rate; a group with a rate of its own starts
/// from that. The optimizer must outlive the scheduler, and not move. Does not allocate but in its
/// constructor.
template <class Schedule, class Optimizer>
requires((lr_schedule<Schedule> && has_learning_rate<Optimizer>) ||
         std::is_void_v<Optimizer>) class lr_scheduler {
 public:
  /// Sets the rate of step 0. Throws error for invalid options, or if the schedule prescribes a
  /// momentum and the optimizer has none, before anything has changed.
  lr_scheduler(Optimizer& optimizer, Schedule schedule)
      : optimizer_{&optimizer},
        schedule_{std::move(schedule)},
        initial_lr_{static_cast<double>(optimizer.options().lr)},
        initial_group_lrs_{detail::group_lrs(optimizer)} {
    schedule_.check();
    if (changes_momentum() && detail::momentum_option(optimizer.options()) == nullptr)
      throw error("the schedule changes the momentum (cycle_momentum), which the optimizer lacks");
    apply(0);
  }

  /// Sets the rate of the next step. Throws error if the schedule has none, before anything has
  /// changed.
  void step() {
    apply(last_epoch_ + 1);
    ++last_epoch_;
  }

  /// The number of calls of step(), under PyTorch's name.
  std::int64_t last_epoch() const { return last_epoch_; }
  /// The rate that was set last.
  double get_last_lr() const { return last_lr_; }
  /// The rate that the schedule starts from.
  double initial_lr() const { return initial_lr_; }
  /// The same of the groups that have rates of their own.
  const std::vector<detail::dependent<double, Schedule>>& initial_group_lrs() const {
    return initial_group_lrs_;
  }
  const Schedule& schedule() const { return schedule_; }
  /// Whether the schedule sets the optimizer's momentum, too.
  bool changes_momentum() const { return detail::momentum_of(schedule_, 0).has_value(); }

  /// What a checkpoint holds of it: last_epoch, initial_lr and, if groups have rates of their own,
  /// initial_group_lr. After writing to them, `restored()`.
  std::array<optimizer_state, 3> state() {
    return {optimizer_state::of("last_epoch", &last_epoch_, 1),
            optimizer_state::of("initial_lr", &initial_lr_, 1),
            optimizer_state::of("initial_group_lr", initial_group_lrs_.data(),
                                initial_group_lrs_.size(), !initial_group_lrs_.empty())};
  }
  /// Sets the rate of the step that was written to the state.
  void restored() { apply(last_epoch_); }

 private:
  void apply(std::int64_t step) {
    const double lr = schedule_.lr(initial_lr_, step);
    const std::optional<double> momentum = detail::momentum_of(schedule_, step);
    auto& options = optimizer_->options();
    options.lr = static_cast<std::remove_cvref_t<decltype(options.lr)>>(lr);
    last_lr_ = lr;
    detail::for_each_group_lr(
        *optimizer_, initial_group_lrs_.size(),
        [&](double& rate, std::size_t i) { rate = schedule_.lr(initial_group_lrs_[i], step); });
    if (!momentum) return;
    auto* option = detail::momentum_option(options);
    *option = static_cast<std::remove_pointer_t<decltype(option)>>(*momentum);
    for (parameter_group& g : detail::groups_of(*optimizer_)) {
      if (g.options.momentum) g.options.momentum = momentum;
      if (g.options.betas) g.options.betas->first = *momentum;
    }
  }

  Optimizer* optimizer_;
  Schedule schedule_;
  double initial_lr_;
  std::vector<detail::dependent<double, Schedule>> initial_group_lrs_;
  double last_lr_ = 0;
  std::int64_t last_epoch_ = 0;
};
template <has_learning_rate Optimizer, lr_schedule Schedule>
lr_scheduler(Optimizer&, Schedule) -> lr_scheduler<Schedule, Optimizer>;
// A refusal at compile time, selected by the deduction guide.
template <class Misuse>
class lr_scheduler<Misuse, void>;
template <bool Lazy = false>
lr_scheduler(...)
    -> lr_scheduler<detail::misuse::lr_scheduler_takes_an_optimizer_and_a_schedule<Lazy>, void>;

}  // namespace ikebana
