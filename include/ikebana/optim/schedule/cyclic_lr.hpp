#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <optional>
#include <string>

#include "ikebana/core/error.hpp"
#include "ikebana/optim/schedule/lr_schedule.hpp"

namespace ikebana {

/// How the amplitude of cyclic_lr changes.
enum class cyclic_mode : unsigned char {
  triangular,   ///< Stays.
  triangular2,  ///< Halves with each cycle.
  exp_range     ///< Is multiplied by gamma at each step.
};

/// The rate rises linearly from base_lr to max_lr in step_size_up steps and falls in
/// step_size_down, cycle after cycle; momentum goes the other way between max_momentum and
/// base_momentum. As CyclicLR (Smith, Cyclical Learning Rates for Training Neural Networks, 2017).
/// The optimizer's own rate and momentum are not used. base_lr and max_lr have no default.
struct cyclic_lr {
  double base_lr = -1;
  double max_lr = -1;
  std::int64_t step_size_up = 2000;
  std::optional<std::int64_t> step_size_down{};  ///< step_size_up without one.
  cyclic_mode mode = cyclic_mode::triangular;
  double gamma = 1;
  bool cycle_momentum = true;
  double base_momentum = 0.8;
  double max_momentum = 0.9;

  void check() const {
    detail::check_option(base_lr >= 0, "cyclic_lr", "base_lr", base_lr);
    detail::check_option(max_lr >= 0, "cyclic_lr", "max_lr", max_lr);
    detail::check_option(step_size_up > 0, "cyclic_lr", "step_size_up",
                         static_cast<double>(step_size_up));
    detail::check_option(down() > 0, "cyclic_lr", "step_size_down", static_cast<double>(down()));
  }
  double lr(double, std::int64_t step) const { return base_lr + (max_lr - base_lr) * height(step); }
  std::optional<double> momentum(std::int64_t step) const {
    if (!cycle_momentum) return std::nullopt;
    return max_momentum - (max_momentum - base_momentum) * height(step);
  }

 private:
  std::int64_t down() const { return step_size_down.value_or(step_size_up); }

  /// Between 0 and 1, if gamma is at most 1.
  double height(std::int64_t step) const {
    const std::int64_t length = step_size_up + down(), cycle = step / length, at = step % length;
    const double share = at <= step_size_up
                             ? static_cast<double>(at) / static_cast<double>(step_size_up)
                             : static_cast<double>(length - at) / static_cast<double>(down());
    switch (mode) {
      case cyclic_mode::triangular2:
        return share * std::pow(0.5, static_cast<double>(cycle));
      case cyclic_mode::exp_range:
        return share * std::pow(gamma, static_cast<double>(step));
      default:
        return share;
    }
  }
};

/// The curve between two rates of one_cycle_lr.
enum class annealing : unsigned char { cos, linear };

/// One cycle: the rate rises from max_lr / div_factor to max_lr in pct_start of the steps and falls
/// to a final_div_factor-th of the first; momentum goes the other way between max_momentum and
/// base_momentum. With three_phase it falls symmetrically to the first rate, and then to the last.
/// As OneCycleLR (Smith and Topin, Super-Convergence: Very Fast Training of Neural Networks Using
/// Large Learning Rates, 2018). The optimizer's own rate and momentum are not used. max_lr has no
/// default, and the number of steps is total_steps, or epochs * steps_per_epoch. A step beyond the
/// last throws error, before anything has changed.
struct one_cycle_lr {
  double max_lr = -1;
  std::int64_t total_steps = 0;
  std::int64_t epochs = 0;
  std::int64_t steps_per_epoch = 0;
  double pct_start = 0.3;
  annealing anneal_strategy = annealing::cos;
  bool cycle_momentum = true;
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  double div_factor = 25;
  double final_div_factor = 1e4;
  bool three_phase = false;

  void check() const {
    detail::check_option(max_lr >= 0, "one_cycle_lr", "max_lr", max_lr);
    detail::check_option(duration() > 0, "one_cycle_lr", "total_steps",
                         static_cast<double>(duration()));
    detail::check_option(pct_start >= 0 && pct_start <= 1, "one_cycle_lr", "pct_start", pct_start);
    detail::check_option(div_factor > 0, "one_cycle_lr", "div_factor", div_factor);
    detail::check_option(final_div_factor > 0, "one_cycle_lr", "final_div_factor",
                         final_div_factor);
  }
  std::int64_t duration() const {
    return total_steps != 0 ? total_steps : epochs * steps_per_epoch;
  }
  double lr(double, std::int64_t step) const {
    const double first = max_lr / div_factor, last = first / final_div_factor;
    return three_phase ? at(step, {first, max_lr, first, last}) : at(step, {first, max_lr, last});
  }
  std::optional<double> momentum(std::int64_t step) const {
    if (!cycle_momentum) return std::nullopt;
    return three_phase ? at(step, {max_momentum, base_momentum, max_momentum, max_momentum})
                       : at(step, {max_momentum, base_momentum, max_momentum});
  }

 private:
  /// The value at a step of the curve through these values, one phase between two of them.
  double at(std::int64_t step, std::initializer_list<double> through) const {
    if (step > duration())
      throw error("one_cycle_lr: step " + std::to_string(step) + " is beyond the last of " +
                  std::to_string(duration()));
    const auto total = static_cast<double>(duration()), n = static_cast<double>(step);
    double begin = 0;
    for (std::size_t phase = 1;; ++phase) {
      const bool is_last = phase + 1 == through.size();
      const auto i = static_cast<double>(phase);
      const double end = is_last ? total - 1 : i * (pct_start * total - 1);
      if (n <= end || is_last)
        return between(through.begin()[phase - 1], through.begin()[phase],
                       (n - begin) / (end - begin));
      begin = end;
    }
  }

  double between(double from, double to, double share) const {
    if (anneal_strategy == annealing::linear) return from + (to - from) * share;
    return to + (from - to) / 2 * (std::cos(std::numbers::pi * share) + 1);
  }
};

}  // namespace ikebana
