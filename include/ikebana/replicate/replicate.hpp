#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/replicate/buckets.hpp"
#include "ikebana/replicate/comm_hook.hpp"
#include "ikebana/replicate/model_buckets.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/verify_parameters.hpp"

namespace ikebana {

namespace detail {

template <class M>
inline constexpr bool is_replicated = false;

}  // namespace detail

/// A model that trains together with those of the other ranks: the same calls, paths and states as
/// the model that it was made of; backward averages the gradients over the ranks, bucket by bucket,
/// while it goes on. Made by `replicate`.
///
/// Gradients end as (1/ranks) times the sum over ranks, and over the batches since zero_grad.
/// Buffers are those of rank 0 after every synchronised backward. Every rank must make the same
/// calls in the same order; forward alone communicates nothing. Steps allocate nothing. Throws
/// communication_error where another rank fails.
template <class Policy, class Model, process_group Group>
class replicated : private Model {
 public:
  using value_type = typename Model::value_type;
  using module_type = typename Model::module_type;
  using policy_type = Policy;
  using model_type = Model;
  using typename Model::output_view;

  static_assert(
      comm_hook_for<typename Policy::hook_type, value_type, Group>,
      "ikebana: comm_hook expects a hook: a type with `result`, start(bucket, group) that "
      "returns a handle, and finish(bucket, group)");

  replicated(Model made, Group& group, typename Policy::hook_type hook)
      : Model{std::move(made)}, group_{&group}, hook_{std::move(hook)} {
    verify_parameters(static_cast<const Model&>(*this), group, "replicate");
    if constexpr (Policy::syncs_at_start) {
      group.broadcast(Model::parameters(), 0);
      group.broadcast(Model::persistent_buffers(), 0);
    }
    buckets_ =
        detail::buckets_of<value_type>(Model::current_program(), Model::layout(), Policy::caps);
    {
      std::vector<bucket_type> all;
      for (std::size_t b = 0; b < buckets_.size(); ++b) all.push_back(bucket(b));
      prepare_hook(hook_, std::span<const bucket_type>{all}, group);
    }
    Model::set_random_stream(static_cast<std::uint32_t>(group.rank()));
  }

  replicated(replicated&&) noexcept = default;
  /// A copy would be a replica that no other rank knows. Copy the weights: get_state_dict,
  /// load_state_dict.
  replicated(const replicated&) = delete;

  using Model::operator();
  using Model::operator[];
  using Model::buffer;
  using Model::buffers;
  using Model::current_inputs;
  using Model::current_program;
  using Model::eval;
  using Model::forward;
  using Model::gradient;
  using Model::gradients;
  using Model::is_training;
  using Model::layout;
  using Model::lowered;
  using Model::module;
  using Model::output;
  using Model::output_shape;
  using Model::parameter_count;
  using Model::parameters;
  using Model::persistent_buffers;
  using Model::register_forward_hook;
  using Model::register_forward_pre_hook;
  using Model::register_load_state_dict_post_hook;
  using Model::register_load_state_dict_pre_hook;
  using Model::register_state_dict_hook;
  using Model::registered_hooks;
  using Model::seed;
  using Model::train;
  using Model::workspace_bytes;
  using Model::zero_grad;

  /// As model::backward; then the gradients are averaged over the ranks.
  template <class G>
  void backward(const G& output_gradient) {
    Model::set_output_gradients(output_gradient);
    if (synchronises_) {
      reducer reduce{*this};
      Model::run_backward(true, reduce);
      complete(reduce);
    } else {
      Model::run_backward(true, detail::nobody_listens{});
    }
  }

  /// The same with the gradients of the inputs, which are this rank's own.
  template <class G, tensor_like... X>
  requires(sizeof...(X) > 0) void backward(const G& output_gradient, X&&... input_gradients) {
    Model::begin_input_gradients(output_gradient, input_gradients...);
    if (synchronises_) {
      reducer reduce{*this};
      Model::run_backward(true, reduce);
      Model::end_input_gradients();
      complete(reduce);
    } else {
      Model::run_backward(true, detail::nobody_listens{});
      Model::end_input_gradients();
    }
  }

  /// As model::train_step, with the gradients averaged over the ranks. Returns the loss of this
  /// rank.
  template <class X, tensor_like Y, class Loss, class Optimizer>
  value_type train_step(const X& x, const Y& target, const Loss& loss, Optimizer& optimizer) {
    constexpr diagnostic wrong = Model::template check_step<X, Y>(Loss{});
    if constexpr (!wrong.ok()) {
      static_cast<void>(sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
    } else {
      const value_type value = synchronised_loss(x, target, loss, false);
      optimizer.step();
      return value;
    }
  }

  /// As model::loss_backward: adds this batch's gradients to what was accumulated, then averages
  /// the sum over the ranks.
  template <class X, tensor_like Y, class Loss>
  value_type loss_backward(const X& x, const Y& target, const Loss& loss) {
    constexpr diagnostic wrong = Model::template check_step<X, Y>(Loss{});
    if constexpr (!wrong.ok())
      static_cast<void>(sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
    else
      return synchronised_loss(x, target, loss, true);
  }

  /// While the guard lives, backward keeps its gradients to this rank; the first backward after it
  /// reduces their sum. It acts where backward runs, wherever forward ran.
  class [[nodiscard]] no_sync_guard {
   public:
    explicit no_sync_guard(replicated& r)
        : replicated_{&r}, before_{std::exchange(r.synchronises_, false)} {}
    no_sync_guard(const no_sync_guard&) = delete;
    ~no_sync_guard() { replicated_->synchronises_ = before_; }

   private:
    replicated* replicated_;
    bool before_;
  };
  no_sync_guard no_sync() { return no_sync_guard{*this}; }

  /// Whether the next backward averages over the ranks.
  void set_requires_gradient_sync(bool on) { synchronises_ = on; }

  Group& group() const { return *group_; }
  /// The slices of the gradients that are reduced together, in the order in which they become
  /// ready; printable.
  const auto& bucket_plan() const { return buckets_; }
  /// The communication hook with its state.
  auto& hook() { return hook_; }

 private:
  static constexpr std::size_t most_buckets = Model::parameter_count;
  using hook_type = typename Policy::hook_type;
  using bucket_type = gradient_bucket<value_type>;
  using work_type = decltype(std::declval<hook_type&>().start(std::declval<bucket_type>(),
                                                              std::declval<Group&>()));

  static constexpr std::size_t stages = hook_stages<hook_type>;

  bucket_type bucket(std::size_t b) {
    const bucket_range& range = buckets_[b];
    constexpr auto element = static_cast<dim_t>(sizeof(value_type));
    return {Model::gradients().subspan(static_cast<std::size_t>(range.begin / element),
                                       static_cast<std::size_t>(range.bytes() / element)),
            b, buckets_.size(), buckets_.parameters(b), range.begin / element};
  }

  /// Hears of finished gradients while backward runs, and starts the buckets that are complete. A
  /// hook of several stages goes through them at moments that depend on no clock, so that all ranks
  /// call the same collectives in the same order: stage s of bucket b when bucket b + s is started.
  struct reducer {
    replicated& self;
    std::size_t started = 0;
    std::size_t in_last_stage = 0;
    std::size_t finished = 0;

    void operator()(dim_t elements) {
      const dim_t bytes = elements * static_cast<dim_t>(sizeof(value_type));
      while (started < self.buckets_.size() && self.buckets_[started].end <= bytes) {
        proceed(started);
        self.works_[started] = self.hook_.start(self.bucket(started), *self.group_);
        ++started;
        if constexpr (stages == 1) ++in_last_stage;
      }
      while (finished < started && self.works_[finished].poll() && finished < in_last_stage)
        finish();
    }

    /// The later stages of the buckets before `next`, the furthest first.
    void proceed(std::size_t next) {
      for (std::size_t s = stages; --s > 0;) {
        if (next < s || next - s >= started) continue;
        const std::size_t b = next - s;
        if constexpr (stages > 1) {
          self.works_[b].wait();
          self.works_[b] = self.hook_.proceed(self.bucket(b), *self.group_, s);
        }
        if (s + 1 == stages) ++in_last_stage;
      }
    }

    void finish() {
      const bucket_type b = self.bucket(finished);
      self.hook_.finish(b, *self.group_);
      if constexpr (hook_type::result == hook_result::sum)
        cpu::scale<value_type>(static_cast<dim_t>(b.data.size()),
                               value_type{1} / static_cast<value_type>(self.group_->size()),
                               b.data.data());
      ++finished;
    }

    /// Waits for all buckets, in their order.
    void drain() {
      for (std::size_t s = 0; s + 1 < stages; ++s) proceed(started + s);
      while (finished < started) {
        self.works_[finished].wait();
        finish();
      }
    }
  };

  template <class X, class Y, class Loss>
  value_type synchronised_loss(const X& x, const Y& target, const Loss& loss, bool accumulate) {
    if (!synchronises_)
      return Model::run_loss(x, target, loss, accumulate, detail::nobody_listens{});
    reducer reduce{*this};
    const value_type value = Model::run_loss(x, target, loss, accumulate, reduce);
    complete(reduce);
    return value;
  }

  void complete(reducer& reduce) {
    reduce(Model::layout().parameter_elements);
    reduce.drain();
    if constexpr (Policy::broadcasts_buffers)
      if (!Model::persistent_buffers().empty()) group_->broadcast(Model::persistent_buffers(), 0);
  }

  Group* group_;
  hook_type hook_;
  named_bucket_plan<most_buckets> buckets_{};
  std::array<work_type, most_buckets> works_{};
  bool synchronises_ = true;
};

namespace detail {
template <class Policy, class Model, class Group>
inline constexpr bool is_replicated<replicated<Policy, Model, Group>> = true;
}  // namespace detail

/// Makes the model one of `group.size()` replicas: `replicate<policy>(initialize<float, S>(net,
/// seed{1}), group)`. Compares the models of all ranks (state_error names the first path that
/// differs, on every rank) and copies the parameters and buffers of rank 0 to all. A hook with
/// options of run time is the last argument. The group must outlive the result. Allocates.
template <class Policy = replicate_policy<>, class Model, process_group Group, class... Hook>
requires(sizeof...(Hook) <= 1) auto replicate(Model model, Group& group, Hook... hook) {
  static_assert(is_replicate_policy<Policy>,
                "ikebana: replicate<Policy> expects a replicate_policy<...>");
  static_assert(!detail::is_replicated<Model>,
                "ikebana: replicate was already applied to this model");
  constexpr bool is_initialized = requires(Model & m) { m.current_program(); };
  static_assert(is_initialized,
                "ikebana: replicate needs an initialized model: initialize<T, shape>(module, seed) "
                "gives one");
  if constexpr (is_replicate_policy<Policy> && !detail::is_replicated<Model> && is_initialized) {
    using hook_type = typename Policy::hook_type;
    constexpr bool fits = std::is_constructible_v<hook_type, Hook...>;
    static_assert(
        fits,
        "ikebana: replicate expects a hook of the policy's comm_hook as its last argument, "
        "and needs one where that has no default");
    if constexpr (fits)
      return replicated<Policy, Model, Group>(std::move(model), group,
                                              hook_type(std::move(hook)...));
  }
}

}  // namespace ikebana
