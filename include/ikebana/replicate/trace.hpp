#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/hooks/module_call.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/replicate/gradient_bucket.hpp"
#include "ikebana/replicate/policy.hpp"

namespace ikebana {

namespace detail {
struct trace_key {};
}  // namespace detail

/// What a trace_event measures.
enum class trace_kind : std::uint8_t {
  forward,        ///< All leaves.
  backward,       ///< The loss and all leaves.
  optimizer,      ///< The optimizer's step, if train_step or step runs it.
  leaf_forward,   ///< `index`: of `leaves()`.
  leaf_backward,  ///< The same.
  reduction,      ///< Of bucket `index`, from its start until it was found complete and finished.
  wait,           ///< Idle until bucket `index` was finished.
  buffers,        ///< Broadcast of buffers from rank 0.
};

/// One interval of a step on one rank.
struct trace_event {
  std::int64_t begin = 0, end = 0;  ///< Nanoseconds of the steady clock.
  std::uint32_t pass = 0;           ///< Number of the forward, from 1.
  std::uint32_t index = 0;
  trace_kind kind{};

  bool operator==(const trace_event&) const = default;
};

/// What one rank did and when: the last events of a training with the policy `traced`.
/// `write_trace` (trace_json.hpp) writes a file for chrome://tracing and Perfetto. Recording
/// allocates nothing: when the memory allocated at construction is full, the oldest events are
/// overwritten.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_step_trace {
 public:
  struct bucket {
    dim_t bytes = 0;
    std::vector<std::string> parameters;
  };

  /// Throws error if the capacity is 0. Allocates.
  basic_step_trace(int rank, std::size_t capacity) : rank_{rank}, ring_(capacity) {
    if (capacity == 0) throw error("a trace needs room for one event or more, got 0");
  }

  int rank() const { return rank_; }
  std::size_t capacity() const { return ring_.size(); }
  /// The number of events held.
  std::size_t size() const { return recorded_ < ring_.size() ? recorded_ : ring_.size(); }
  /// The number of events recorded, including overwritten ones.
  std::size_t recorded() const { return recorded_; }
  /// Events from the oldest on.
  const trace_event& operator[](std::size_t i) const {
    return ring_[(recorded_ - size() + i) % ring_.size()];
  }

  /// The paths of the leaves, or their kinds if they have none.
  const std::vector<std::string>& leaves() const { return leaves_; }
  /// The current buckets: a static graph rebuilds them after its first step.
  const std::vector<bucket>& buckets() const { return buckets_; }

  /// Removes all events.
  void clear() { recorded_ = 0; }

  static std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  /// An event of the current pass.
  void record(trace_kind kind, std::size_t index, std::int64_t begin, std::int64_t end) {
    record({begin, end, pass_, static_cast<std::uint32_t>(index), kind});
  }
  void record(const trace_event& e) { ring_[recorded_++ % ring_.size()] = e; }

  std::uint32_t pass() const { return pass_; }
  void begin_pass() { ++pass_; }
  template <class = void>
  void add_leaf(std::string_view name) {
    leaves_.emplace_back(name);
  }
  template <class = void>
  void set_bucket(std::size_t i, bucket b) {
    if (i >= buckets_.size()) buckets_.resize(i + 1);
    buckets_[i] = std::move(b);
  }

 private:
  int rank_;
  std::vector<trace_event> ring_;
  std::size_t recorded_ = 0;
  std::uint32_t pass_ = 0;
  std::vector<std::string> leaves_;
  std::vector<bucket> buckets_;
};
using step_trace = basic_step_trace<void>;

/// Records what each step does and when; `trace_of(replica)` returns the last `Events` events.
/// Costs four clock readings per leaf and step.
template <std::size_t Events = 16384>
struct traced {
  static_assert(Events > 0, "ikebana: traced expects a number of events above 0");
  using replicate_key = detail::trace_key;
  static constexpr bool may_differ = true;  ///< Ranks may differ in whether they are traced.

  /// See feature.hpp.
  template <class Model, class Group>
  class feature {
   public:
    template <class R>
    void prepare(R& r) {
      state_ = std::make_unique<state>(r.group().rank());
      const auto& plan = r.bucket_plan();
      for (std::size_t b = 0; b < plan.size(); ++b)
        name_bucket(b, plan[b].bytes(), plan.parameters(b));
      const auto& p = r.current_program();
      for (const program_node& node : p.all_nodes()) state_->leaf_of_node.push_back(node.leaf);
      for (const program_leaf& leaf : p.leaves) {
        const std::string path{p.path(leaf).view()};
        hook_leaf(r, path, state_->trace.leaves().size());
        state_->trace.add_leaf(path.empty() ? leaf.kind : path);
      }
    }

    void before_forward(auto&) {
      state_->end_phase();
      state_->trace.begin_pass();
      state_->begin_phase(trace_kind::forward);
    }
    void before_backward(auto&) {
      state_->end_phase();
      state_->begin_phase(trace_kind::backward);
    }
    void before_leaf_backward(int) { state_->leaf_began = step_trace::now(); }
    void after_leaf_backward(int node) {
      state_->end_leaf(trace_kind::leaf_backward,
                       state_->leaf_of_node[static_cast<std::size_t>(node)]);
    }
    void bucket_started(const auto& bucket, auto&) {
      name_bucket(bucket.index, static_cast<dim_t>(bucket.data.size_bytes()), bucket.parameters);
      state_->reductions[bucket.index] = {step_trace::now(), state_->trace.pass()};
    }
    void before_wait(std::size_t) { state_->wait_began = step_trace::now(); }
    void bucket_finished(const auto& bucket, auto&) {
      state& s = *state_;
      s.bucket_ended = step_trace::now();
      if (s.wait_began != 0)
        s.trace.record(trace_kind::wait, bucket.index, s.wait_began, s.bucket_ended);
      s.wait_began = 0;
      // It may have been in flight since an earlier pass.
      const auto [began, pass] = s.reductions[bucket.index];
      s.trace.record({began, s.bucket_ended, pass, static_cast<std::uint32_t>(bucket.index),
                      trace_kind::reduction});
    }
    template <class R>
    void after_backward(R& r) {
      state& s = *state_;
      s.end_phase();
      if (R::policy_type::broadcasts_buffers && r.synchronises() && !r.persistent_buffers().empty())
        s.trace.record(trace_kind::buffers, 0, std::max(s.leaf_ended, s.bucket_ended),
                       step_trace::now());
    }
    void before_step(auto&, auto&) { state_->step_began = step_trace::now(); }
    void after_step(auto&, auto&) {
      state_->trace.record(trace_kind::optimizer, 0, state_->step_began, step_trace::now());
    }

    step_trace& trace() { return state_->trace; }

   private:
    // The model's hooks keep its address.
    struct state {
      explicit state(int rank) : trace{rank, Events} {}

      void end_leaf(trace_kind kind, int leaf) {
        leaf_ended = step_trace::now();
        trace.record(kind, static_cast<std::size_t>(leaf), leaf_began, leaf_ended);
      }

      void begin_phase(trace_kind kind) {
        phase = kind;
        in_phase = true;
        phase_began = leaf_ended = step_trace::now();
      }
      /// It ended with its last leaf.
      void end_phase() {
        if (in_phase) trace.record(phase, 0, phase_began, leaf_ended);
        in_phase = false;
      }

      step_trace trace;
      trace_kind phase{};
      bool in_phase = false;
      std::int64_t phase_began = 0, step_began = 0;
      std::int64_t leaf_began = 0, leaf_ended = 0;
      std::int64_t wait_began = 0, bucket_ended = 0;
      std::vector<int> leaf_of_node;
      struct start {
        std::int64_t when = 0;
        std::uint32_t pass = 0;
      };
      std::vector<start> reductions;  ///< By bucket.
    };

    /// Allocates if the bucket has changed.
    void name_bucket(std::size_t index, dim_t bytes, std::span<const bucket_parameter> parameters) {
      const auto& known = state_->trace.buckets();
      if (index < known.size() && known[index].bytes == bytes &&
          std::ranges::equal(known[index].parameters, parameters, {}, {},
                             [](const bucket_parameter& p) { return p.path.view(); }))
        return;
      step_trace::bucket named{bytes, {}};
      for (const bucket_parameter& p : parameters) named.parameters.emplace_back(p.path.view());
      state_->trace.set_bucket(index, std::move(named));
      state_->reductions.resize(state_->trace.buckets().size());
    }

    template <class R>
    void hook_leaf(R& r, const std::string& path, std::size_t leaf) {
      state* s = state_.get();
      r.register_forward_pre_hook(path,
                                  [s](const module_call&) { s->leaf_began = step_trace::now(); });
      r.register_forward_hook(
          path,
          [s, leaf](const module_call&) {
            s->end_leaf(trace_kind::leaf_forward, static_cast<int>(leaf));
          },
          true);
    }

    std::unique_ptr<state> state_;
  };
};

namespace detail {

template <class Replica>
inline constexpr bool is_traced = policy_has<typename Replica::policy_type, trace_key>;

namespace misuse {
IKEBANA_MISUSE(trace_of_an_untraced_replica,
               "trace_of needs a replica whose replicate_policy has traced<>");
}  // namespace misuse

}  // namespace detail

/// The trace of a replica whose policy has `traced`.
template <class Replica>
requires(detail::is_traced<Replica>) step_trace& trace_of(Replica& replica) {
  return replica.template feature<detail::trace_key>().trace();
}
template <class Replica>
requires(!detail::is_traced<Replica>) auto trace_of(const Replica&)
    -> decltype(detail::refuse_for<detail::misuse::trace_of_an_untraced_replica, Replica>());

}  // namespace ikebana
