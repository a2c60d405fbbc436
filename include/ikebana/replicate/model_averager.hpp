#pragma once

#include <cstdint>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

/// Averages the parameters of the ranks of a group periodically, after the optimizer's step, like
/// PyTorch's PeriodicModelAverager: in calls warmup_steps, warmup_steps + period, ... of `average`,
/// counted from 0. `warmup_steps` is the start_iteration of `post_local_sgd`. One object per rank.
/// Throws ikebana::error for a period below 1 or a negative warmup.
struct model_averager_options {
  std::int64_t period = 1;
  std::int64_t warmup_steps = 0;
};

template <process_group Group>
class model_averager {
 public:
  model_averager(Group& group, model_averager_options options) : group_{&group}, options_{options} {
    if (options.period < 1) throw error("model_averager expects a period of at least 1");
    if (options.warmup_steps < 0)
      throw error("model_averager expects warmup_steps that are not negative");
  }

  /// Must be called once after every step. Returns true if this call averaged: then every rank of
  /// the group has the same parameters. One all_reduce of all parameters, in place; no allocation.
  /// Throws communication_error.
  template <class Model>
  bool average(Model& model) {
    const std::int64_t since = step_++ - options_.warmup_steps;
    if (since < 0 || since % options_.period != 0) return false;
    group_->all_reduce(model.parameters(), reduce_op::avg);
    return true;
  }

  /// The number of calls of `average`.
  std::int64_t step() const { return step_; }
  /// Sets the number of calls, to resume a saved run. Throws state_error if it is negative.
  void set_step(std::int64_t step) {
    if (step < 0) throw state_error("model_averager expects a step that is not negative");
    step_ = step;
  }

 private:
  Group* group_;
  model_averager_options options_;
  std::int64_t step_ = 0;
};

}  // namespace ikebana
