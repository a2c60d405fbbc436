#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

/// How ranks with different numbers of batches train together: see `joining_replica::join`.
struct join_options {
  /// Whether a sum of gradients is divided by the size of the group until the end, or, at each
  /// step, by how many ranks still have inputs.
  bool divide_by_initial_world_size = true;
  /// If false, the body is simply run.
  bool enable = true;
  /// Whether all ranks throw early_termination as soon as one has no more inputs. For bodies with
  /// collectives of their own, which nobody could make in the place of an exhausted rank.
  bool throw_on_early_termination = false;
};

/// Thrown on every rank, before the step has changed anything, where one has exhausted its inputs
/// and join was told to throw.
class early_termination : public error {
 public:
  using error::error;
};

namespace detail {

/// What a rank knows of the others while a join is on.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_join_state {
 public:
  bool on() const { return on_; }
  /// The rank whose buffers are everyone's after the step.
  int buffer_source() const { return on_ ? source_ : 0; }
  /// By what means over all ranks are to be multiplied, to be means over those that have inputs.
  template <class T>
  T share(int ranks) const {
    return on_ && divides_by_active() ? static_cast<T>(ranks) / static_cast<T>(active_) : T{1};
  }
  /// Whether the gradients of the step are to be divided by the ranks that have inputs alone.
  bool divides_by_active() const { return !options_.divide_by_initial_world_size; }
  /// How many ranks made this step with inputs.
  int active() const { return active_; }
  /// The highest of them; of the last step that any made.
  int source() const { return source_; }
  /// Whether those have begun a new sum of gradients since the last synchronised backward, and
  /// whether this is their last backward before a step.
  bool others_restarted() const { return others_restarted_; }
  bool others_are_last() const { return others_are_last_; }

  void begin(int ranks, const join_options& options) {
    if (on_) throw state_error("join: one is on already");
    reports_.assign(static_cast<std::size_t>(ranks), {});
    options_ = options;
    active_ = ranks;
    source_ = -1;
    on_ = true;
  }
  void end() noexcept { on_ = false; }

  /// Says whether this rank makes a step with inputs of its own, and hears who else does. One
  /// exchange of 3 bytes; allocates nothing. Throws early_termination if asked to, on every rank.
  template <process_group Group>
  void meet(Group& group, bool has_inputs, bool restarted, bool last) {
    exchange(group, report{has_inputs, restarted, last}, std::span{reports_});
    int active = 0;
    others_restarted_ = others_are_last_ = false;
    for (std::size_t r = 0; r < reports_.size(); ++r) {
      if (!reports_[r].active) continue;
      ++active;
      source_ = static_cast<int>(r);
      others_restarted_ = others_restarted_ || reports_[r].restarted;
      others_are_last_ = others_are_last_ || reports_[r].last;
    }
    active_ = active;
    if (!options_.throw_on_early_termination || active == 0 || active == group.size()) return;
    throw early_termination("rank " + std::to_string(group.rank()) +
                            (has_inputs ? ": detected at least one rank that exhausted its inputs; "
                                          "throwing across all ranks"
                                        : ": exhausted all inputs"));
  }

 private:
  struct report {
    bool active = false, restarted = false, last = false;
  };

  bool on_ = false;
  join_options options_{};
  int active_ = 0;
  int source_ = -1;
  bool others_restarted_ = false, others_are_last_ = false;
  std::vector<report> reports_;
};
using join_state = basic_join_state<void>;

struct shard_optimizer_key;

/// Whether ranks that are through need no optimizer to follow the others.
template <class Policy>
inline constexpr bool joins_without_optimizer = !policy_has<Policy, shard_optimizer_key>;

/// Runs the body with a join on; then shadows the steps of those who go on: `shadow()` makes the
/// collectives of one. Returns, on all ranks at the same step, when none has inputs any more; false
/// if no step was made.
template <class Group, class Body, class Shadow>
bool run_joined(join_state& state, Group& group, const join_options& options, Body&& body,
                Shadow&& shadow) {
  state.begin(group.size(), options);
  struct ending {
    join_state& state;
    ~ending() { state.end(); }
  };
  const ending guard{state};
  std::forward<Body>(body)();
  for (;;) {
    state.meet(group, false, false, false);
    if (state.active() == 0) return state.source() >= 0;
    shadow();
  }
}

}  // namespace detail

/// What a replica does where ranks have different numbers of inputs: a base of `replicated`.
template <class Replica, class Policy>
class joining_replica {
 public:
  /// Runs `body()`, in which ranks may make different numbers of synchronised backwards: those that
  /// are through make the collectives of the others in their place, with gradients of zero, until
  /// none goes on. Then all have the parameters and persistent buffers of the highest rank of those
  /// that made the last step.
  ///
  ///     model.join([&] { for (const auto& b : loader) model.train_step(b.x, b.y, loss, opt); });
  ///
  /// Until then buffers are those of the highest rank that goes on. The optimizers of ranks that
  /// are through do not move, unless join is given them: then each makes a step after every such
  /// backward, so that they too are the same everywhere. Gradients that a rank had accumulated
  /// before it was through count. While a join is on, each synchronised backward begins with an
  /// exchange of 3 bytes. The body may call no other collectives of the group, unless
  /// `throw_on_early_termination`. What it throws on this rank is thrown here, without waiting for
  /// the others, who get a communication_error once this rank's group is gone. Throws state_error
  /// where a join is on already.
  template <class Body>
  void join(Body&& body, const join_options& options = {}) {
    static_assert(
        detail::joins_without_optimizer<Policy>,
        "ikebana: a join under shard_optimizer needs the optimizer, of which each rank has "
        "a part: model.join(optimizer, body)");
    join_with(std::forward<Body>(body), options, [] {});
  }
  template <class Optimizer, class Body>
  requires requires(Optimizer& o) { o.step(); }
  void join(Optimizer& optimizer, Body&& body, const join_options& options = {}) {
    join_with(std::forward<Body>(body), options, [&] { self().step(optimizer); });
  }

 protected:
  /// Whether the gradients that this rank has are part of what the others sum now.
  bool keeps_gradients() const {
    return restarted_ || !(join_.divides_by_active() || join_.others_restarted());
  }

  detail::join_state join_;
  bool restarted_ = true;  ///< The gradients hold nothing that was synchronised.

 private:
  Replica& self() { return static_cast<Replica&>(*this); }

  template <class Body, class Step>
  void join_with(Body&& body, const join_options& options, Step&& step) {
    Replica::refuse_in_backward_steps();
    if (!options.enable) return static_cast<void>(std::forward<Body>(body)());
    // Those who have no batch at all run no forward.
    self().buffer_sync_.before_forward(self().group(), true);
    const bool any =
        detail::run_joined(join_, self().group(), options, std::forward<Body>(body), [&] {
          self().shadow();
          step();
        });
    if (any) self().broadcast_states(self().group(), join_.source());
  }
};

/// Trains on all batches of `batches`, of which every rank may have another number:
/// `f(batch)` for each, within a join. See `joining_replica::join`, whose options these are.
///
///     ike::for_each_uneven(model, loader, [&](const auto& b) {
///       model.train_step(b.x, b.y, ike::cross_entropy{}, optimizer);
///     });
template <class Replica, class Batches, class F>
void for_each_uneven(Replica& model, Batches&& batches, F&& f, const join_options& options = {}) {
  model.join(
      [&] {
        for (auto&& batch : batches) f(batch);
      },
      options);
}

/// The same, where the ranks without inputs make the optimizer's steps too.
template <class Replica, class Optimizer, class Batches, class F>
requires requires(Optimizer& o) { o.step(); }
void for_each_uneven(Replica& model, Optimizer& optimizer, Batches&& batches, F&& f,
                     const join_options& options = {}) {
  model.join(
      optimizer,
      [&] {
        for (auto&& batch : batches) f(batch);
      },
      options);
}

}  // namespace ikebana
