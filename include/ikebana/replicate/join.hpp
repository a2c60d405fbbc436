#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/exchange_in_group.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

/// How ranks with different numbers of batches train together; see `joining_replica::join`.
struct join_options {
  /// Whether the sum of gradients is always divided by the size of the group, or at each step by
  /// the number of ranks that still have inputs.
  bool divide_by_initial_world_size = true;
  /// If false, the body simply runs.
  bool enable = true;
  /// Whether all ranks throw early_termination as soon as one has no more inputs. For bodies with
  /// their own collectives, which an exhausted rank cannot take part in.
  bool throw_on_early_termination = false;
};

/// Thrown on every rank, before the step has changed anything, if one rank has exhausted its inputs
/// and join was told to throw.
class early_termination : public error {
 public:
  using error::error;
};

namespace detail {

/// What a rank knows about the others during a join.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_join_state {
 public:
  bool on() const { return on_; }
  /// The factor that turns a mean over all ranks into one over the active ranks.
  template <class T>
  T share(int ranks) const {
    return on_ && divides_by_active() ? static_cast<T>(ranks) / static_cast<T>(active_) : T{1};
  }
  /// Whether the gradients of the step are divided by the number of active ranks only.
  bool divides_by_active() const { return !options_.divide_by_initial_world_size; }
  /// The number of ranks that made this step with inputs.
  int active() const { return active_; }
  /// The highest of them; of the last step that any rank made.
  int source() const { return source_; }
  /// Whether they have started a new sum of gradients since the last synchronised backward, and
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

  /// Announces whether this rank makes a step with its own inputs, and finds out who else does. One
  /// exchange of 3 bytes; no allocation. Throws early_termination on every rank if requested.
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
    throw_if_requested(group, active, has_inputs);
  }

  /// Announces whether this rank makes another step. Returns the highest rank that does, whose
  /// buffers are then broadcast, or -1 if there is none. Throws as meet does.
  template <process_group Group>
  int next_buffer_source(Group& group, bool has_inputs) {
    exchange(group, report{has_inputs}, std::span{reports_});
    int active = 0, highest = -1;
    for (std::size_t r = 0; r < reports_.size(); ++r) {
      if (!reports_[r].active) continue;
      ++active;
      highest = static_cast<int>(r);
    }
    throw_if_requested(group, active, has_inputs);
    return highest;
  }

 private:
  struct report {
    bool active = false, restarted = false, last = false;
  };

  template <class Group>
  void throw_if_requested(const Group& group, int active, bool has_inputs) const {
    if (!options_.throw_on_early_termination || active == 0 || active == group.size()) return;
    throw early_termination("rank " + std::to_string(group.rank()) +
                            (has_inputs ? ": detected at least one rank that exhausted its inputs; "
                                          "throwing across all ranks"
                                        : ": exhausted all inputs"));
  }

  bool on_ = false;
  join_options options_{};
  int active_ = 0;
  int source_ = -1;
  bool others_restarted_ = false, others_are_last_ = false;
  std::vector<report> reports_;
};
using join_state = basic_join_state<void>;

struct shard_optimizer_key;

/// Whether exhausted ranks can follow the others without an optimizer.
template <class Policy>
inline constexpr bool joins_without_optimizer = !policy_has<Policy, shard_optimizer_key>;

/// Runs the body during a join, then takes part in the steps of the ranks that continue:
/// `prepare()` makes the collectives before a step and `shadow()` those of the step. Returns on all
/// ranks at the same step, when no rank has inputs any more; false if no step was made.
template <class Group, class Body, class Prepare, class Shadow>
bool run_joined(join_state& state, Group& group, const join_options& options, Body&& body,
                Prepare&& prepare, Shadow&& shadow) {
  state.begin(group.size(), options);
  struct ending {
    join_state& state;
    ~ending() { state.end(); }
  };
  const ending guard{state};
  std::forward<Body>(body)();
  for (;;) {
    prepare();
    state.meet(group, false, false, false);
    if (state.active() == 0) return state.source() >= 0;
    shadow();
  }
}

}  // namespace detail

/// The part of a replica that handles different numbers of inputs: a base of `replicated`.
template <class Replica, class Policy>
class joining_replica {
 public:
  /// Runs `body()`, in which ranks may make different numbers of synchronised backwards: exhausted
  /// ranks take part in the collectives of the others with zero gradients, until no rank continues.
  /// Afterwards all have the parameters and persistent buffers of the highest rank that made the
  /// last step.
  ///
  ///     model.join([&] { for (const auto& b : loader) model.train_step(b.x, b.y, loss, opt); });
  ///
  /// Until then, each step starts from the buffers of the highest rank that makes it, as in
  /// PyTorch; between steps each rank has its own. (A buffer hook runs after every synchronised
  /// backward instead.) The optimizers of exhausted ranks do not step, unless they are passed to
  /// join: then each steps after every such backward, so that they remain equal too. Gradients that
  /// a rank accumulated before it was exhausted count. During a join, each synchronised backward
  /// starts with an exchange of 3 bytes, and the first forward in training mode after it with
  /// another if there are buffers to broadcast.
  ///
  /// The body must not call other collectives of the group, except with
  /// `throw_on_early_termination`. An exception of the body is rethrown on this rank without
  /// waiting for the others, which get a communication_error once this rank's group is gone. Throws
  /// state_error if a join is active already.
  template <class Body>
  void join(Body&& body, const join_options& options = {}) {
    refuse_exchanges();
    static_assert(
        detail::joins_without_optimizer<Policy>,
        "ikebana: a join under shard_optimizer needs the optimizer, of which each rank has "
        "a part: model.join(optimizer, body)");
    join_with(std::forward<Body>(body), options, [] {});
  }
  template <class Optimizer, class Body>
  requires requires(Optimizer& o) { o.step(); }
  void join(Optimizer& optimizer, Body&& body, const join_options& options = {}) {
    refuse_exchanges();
    join_with(std::forward<Body>(body), options, [&] { self().step(optimizer); });
  }

 protected:
  static constexpr void refuse_exchanges() {
    static_assert(
        !detail::has_exchanges<typename Replica::model_type>,
        "ikebana: join lets ranks finish early, and sync_batch_norm needs a batch of every "
        "rank in each step");
  }
  /// Whether this rank's gradients are part of the sum that the others are making.
  bool keeps_gradients() const {
    return restarted_ || !(join_.divides_by_active() || join_.others_restarted());
  }

  detail::join_state join_;
  bool restarted_ = true;  ///< The gradients contain nothing synchronised.

 private:
  Replica& self() { return static_cast<Replica&>(*this); }

  template <class Body, class Step>
  void join_with(Body&& body, const join_options& options, Step&& step) {
    Replica::refuse_in_backward_steps();
    if (!options.enable) return static_cast<void>(std::forward<Body>(body)());
    // Ranks without any batch run no forward.
    self().buffer_sync_.before_forward(self().group(), true);
    // If an exception ends the join, a postponed broadcast is cancelled, because only this join
    // needs it.
    struct ending {
      Replica& self;
      ~ending() { static_cast<void>(self.buffer_sync_.take_due()); }
    };
    const ending guard{self()};
    const bool any = detail::run_joined(
        join_, self().group(), options, std::forward<Body>(body),
        [&] { self().settle_buffers(false); },
        [&] {
          self().shadow();
          step();
        });
    if (any) self().broadcast_states(self().group(), join_.source());
  }
};

/// Trains on all batches of `batches`, whose number may differ between ranks: calls `f(batch)` for
/// each within a join. See `joining_replica::join` for the options.
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

/// The same, with ranks without inputs making the optimizer's steps too.
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
