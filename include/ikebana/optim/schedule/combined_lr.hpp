#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "ikebana/module/refusal.hpp"
#include "ikebana/optim/schedule/lr_schedule.hpp"

namespace ikebana {

namespace detail {

/// The momentum that a schedule prescribes for a step, if it prescribes one.
template <lr_schedule S>
std::optional<double> momentum_of(const S& s, std::int64_t step) {
  if constexpr (requires { s.momentum(step); })
    return s.momentum(step);
  else
    return std::nullopt;
}

}  // namespace detail

/// A schedule that sequential_lr follows for `steps` steps, for those without an end of their own.
template <lr_schedule S>
class for_steps {
 public:
  for_steps(std::int64_t steps, S schedule) : steps_{steps}, schedule_{std::move(schedule)} {}

  void check() const {
    detail::check_option(steps_ >= 0, "for_steps", "number of steps", static_cast<double>(steps_));
    schedule_.check();
  }
  std::int64_t duration() const { return steps_; }
  double lr(double initial, std::int64_t step) const { return schedule_.lr(initial, step); }
  std::optional<double> momentum(std::int64_t step) const {
    return detail::momentum_of(schedule_, step);
  }

 private:
  std::int64_t steps_;
  S schedule_;
};

/// Several schedules one after another, each from its own step 0, as SequentialLR: a warm-up is
/// `sequential_lr{linear_lr{.start_factor = 0.1, .total_iters = 500},
/// cosine_annealing_lr{.t_max = 10'000}}`. PyTorch's milestones are the sums of the durations; all
/// but the last schedule have one (`for_steps` gives one to any).
template <class... S>
class sequential_lr;
template <lr_schedule... S>
requires(sizeof...(S) > 0) class sequential_lr<S...> {
  static constexpr std::size_t count = sizeof...(S);

 public:
  explicit sequential_lr(S... parts) : parts_{std::move(parts)...} {}

  void check() const {
    std::apply([](const S&... part) { (part.check(), ...); }, parts_);
  }
  /// The sum of all durations.
  std::int64_t duration() const requires(finite_lr_schedule<S>&&...) {
    return std::apply([](const S&... part) { return (part.duration() + ...); }, parts_);
  }
  double lr(double initial, std::int64_t step) const {
    return at(step, [&](const auto& part, std::int64_t own) { return part.lr(initial, own); });
  }
  std::optional<double> momentum(std::int64_t step) const {
    return at(step,
              [](const auto& part, std::int64_t own) { return detail::momentum_of(part, own); });
  }

 private:
  /// f(part, step within the part) of the part to which a step belongs.
  template <std::size_t I = 0, class F>
  auto at(std::int64_t step, F f) const {
    const auto& part = std::get<I>(parts_);
    if constexpr (I + 1 < count) {
      const std::int64_t length = part.duration();
      if (step >= length) return at<I + 1>(step - length, f);
    }
    return f(part, step);
  }

  std::tuple<S...> parts_;
};

template <class... S>
requires(sizeof...(S) > 0 && (lr_schedule<S> && ...)) explicit sequential_lr(S...)
    ->sequential_lr<S...>;

namespace detail::misuse {
IKEBANA_MISUSE(sequential_lr_takes_schedules,
               "sequential_lr takes schedules: sequential_lr{for_steps{500, linear_lr{}}, "
               "cosine_annealing_lr{.t_max = 10000}}");
}  // namespace detail::misuse
template <class... S>
requires(sizeof...(S) > 0 && !(lr_schedule<S> && ...)) sequential_lr(S...)
->sequential_lr<detail::misuse::sequential_lr_takes_schedules<detail::later<S...>>>;
template <bool Lazy = false>
sequential_lr() -> sequential_lr<detail::misuse::sequential_lr_takes_schedules<Lazy>>;

/// Several schedules at a time, each of the rate that the one before gives, as ChainedScheduler.
/// Agrees with PyTorch, which chains the changes from step to step, if all of them scale the rate.
template <lr_schedule... S>
class chained_lr {
 public:
  explicit chained_lr(S... parts) : parts_{std::move(parts)...} {}

  void check() const {
    std::apply([](const S&... part) { (part.check(), ...); }, parts_);
  }
  double lr(double initial, std::int64_t step) const {
    std::apply([&](const S&... part) { ((initial = part.lr(initial, step)), ...); }, parts_);
    return initial;
  }
  /// That of the last schedule that prescribes one.
  std::optional<double> momentum(std::int64_t step) const {
    std::optional<double> last;
    const auto take = [&](const auto& part) {
      if (const auto own = detail::momentum_of(part, step)) last = own;
    };
    std::apply([&](const S&... part) { (take(part), ...); }, parts_);
    return last;
  }

 private:
  std::tuple<S...> parts_;
};

}  // namespace ikebana
