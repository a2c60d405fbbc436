#pragma once

#include <concepts>
#include <cstddef>
#include <vector>

#include "ikebana/core/shape.hpp"
#include "ikebana/model/parameter_shards.hpp"
#include "ikebana/replicate/parameter_groups.hpp"

namespace ikebana {

namespace detail {

struct optimizer_in_backward_key {};
struct shard_optimizer_key;

}  // namespace detail

/// An optimizer that can step in parts, as Ikebana's can: `begin_step()`, which makes all checks
/// and changes no parameter, then `step_elements(begin, end)` for ranges of the flat parameters, in
/// any order, until every element was in exactly one.
template <class O>
concept steps_in_parts = requires(O& o, dim_t i) {
  o.begin_step();
  o.step_elements(i, i);
};

/// Whether `train_step` updates a bucket's parameters as soon as its gradients are averaged, while
/// backward continues with the others: they are still in the cache, and the step is hidden where
/// backward would wait for other ranks (PyTorch's _apply_optimizer_in_backward, and the hook of
/// that name in DistributedDataParallel). The bits are those of a step at the end.
///
///     using policy = ike::replicate_policy<ike::optimizer_in_backward<true>>;
///     auto net = ike::replicate<policy>(made, group);
///     ike::sgd optimizer{net, {.lr = 0.1}};
///     net.train_step(x, y, loss, optimizer);
///
/// Gradients are consumed as soon as they are complete, so anything between them and the step does
/// not compile: backward without an optimizer (loss_backward, backward), accumulation (no_sync,
/// set_requires_gradient_sync), clipping (clip_grad_norm), join, and parameters without a gradient.
/// Works with every comm_hook, with shard_optimizer, and in a world of one rank, `ike::single`.
/// After a communication_error, the parameters of some buckets have been updated.
template <bool Value>
struct optimizer_in_backward {
  using replicate_key = detail::optimizer_in_backward_key;
  static constexpr bool value = Value;
};

template <>
struct optimizer_in_backward<true> {
  using replicate_key = detail::optimizer_in_backward_key;
  static constexpr bool value = true;

  template <class Model, class Group>
  class feature {
   public:
    /// Finds the elements that are in no bucket.
    template <class R>
    void prepare(R& r) {
      static_assert(!Model::may_lack_gradients,
                    "ikebana: with optimizer_in_backward every parameter has a gradient in every "
                    "step, which is not so in a network with branches or several outputs");
      constexpr bool reduces_all = [] {
        bool all = true;
        for (bool on : detail::parameter_groups<typename R::policy_type>::synchronises)
          all = all && on;
        return all;
      }();
      static_assert(
          reduces_all,
          "ikebana: with optimizer_in_backward every bucket is reduced in every backward, "
          "so requires_gradient_sync cannot be false");
      using T = typename R::value_type;
      constexpr auto element = static_cast<dim_t>(sizeof(T));
      const auto elements = static_cast<dim_t>(r.parameters().size());
      std::vector<bool> in_bucket(static_cast<std::size_t>(elements));
      for (const auto& b : r.bucket_plan())
        for (dim_t i = b.begin / element; i < b.end / element; ++i)
          in_bucket[static_cast<std::size_t>(i)] = true;
      others_.clear();
      for (dim_t i = 0; i < elements; ++i) {
        if (in_bucket[static_cast<std::size_t>(i)]) continue;
        if (others_.empty() || others_.back().end != i) others_.push_back({i, i});
        others_.back().end = i + 1;
      }
    }

    /// Before the forward of a train_step: sets the optimizer that will step.
    template <class Optimizer>
    void before_train_step(Optimizer& optimizer) {
      static_assert(steps_in_parts<Optimizer>,
                    "ikebana: optimizer_in_backward expects an optimizer that steps in parts: with "
                    "begin_step() and step_elements(begin, end)");
      if constexpr (steps_in_parts<Optimizer>) {
        optimizer_ = &optimizer;
        begin_ = [](void* o) { static_cast<Optimizer*>(o)->begin_step(); };
        part_ = [](void* o, dim_t begin, dim_t end) {
          static_cast<Optimizer*>(o)->step_elements(begin, end);
        };
      }
    }
    template <class R>
    void before_backward(R& r) {
      begin_(optimizer_);
      if constexpr (requires { r.shards(); }) {
        is_shared_ = true;
        r.template feature<detail::shard_optimizer_key>().shards()->set_stepper(optimizer_, part_);
      }
    }
    template <class Bucket>
    void bucket_finished(const Bucket& b, Group&) {
      if (!is_shared_) part_(optimizer_, b.begin, b.begin + static_cast<dim_t>(b.data.size()));
    }
    /// Replaces the step at the end: updates what is in no bucket.
    template <class R, class Optimizer>
    void step(R&, Optimizer&) {
      for (const parameter_range& r : others_) part_(optimizer_, r.begin, r.end);
    }

   private:
    std::vector<parameter_range> others_;
    bool is_shared_ = false;  ///< Then its hook steps.
    void* optimizer_ = nullptr;
    void (*begin_)(void*) = nullptr;
    void (*part_)(void*, dim_t, dim_t) = nullptr;
  };
};

namespace detail {

template <class Policy>
inline constexpr bool steps_in_backward =
    Policy::template option<optimizer_in_backward_key, optimizer_in_backward<false>>::value;

}  // namespace detail
}  // namespace ikebana
