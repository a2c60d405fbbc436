#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/shape_list.hpp"
#include "ikebana/replicate/invariant.hpp"
#include "ikebana/replicate/invariant/invariant_buffers.hpp"
#include "ikebana/replicate/invariant/invariant_presence.hpp"
#include "ikebana/replicate/invariant/invariant_rows.hpp"
#include "ikebana/replicate/invariant/invariant_sum.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/policy_fingerprint.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/replica_of.hpp"
#include "ikebana/replicate/utils/verify_parameters.hpp"

namespace ikebana {

namespace detail {

template <class Policy>
inline constexpr bool is_only_invariant = false;
template <class... Options>
inline constexpr bool is_only_invariant<replicate_policy<Options...>> =
    ((answers<invariant_key, Options> || answers<init_sync_key, Options>)&&...);

}  // namespace detail

/// A model that trains to the same bits with any number of ranks from 1 to S, for a policy with
/// `invariant<S>`. Created by `replicate`. The model is initialized for inputs of one shard: a
/// batch extent of rows / S, or `dynamic`.
///
/// Each step takes this rank's part of the batch (`part`), sliced along the first dimension of
/// every input and of the target. A shard runs as if on its own rank: with its own random stream,
/// batch norm over its rows, the mean of the loss over its rows. Its gradients are weighted by its
/// rows and summed by a fixed tree, so that `gradients()` is that of the mean over the global
/// batch; for a loss that sums over rows, the mean of the shards' sums. As with `replicate`, a mean
/// over something other than rows (cross_entropy's over labels that are not ignored) is taken
/// within each shard.
///
/// Buffers of the model's type (running statistics) become the mean over the shards, each of which
/// starts from the values before the step; others (counters) are those of the first shard. A
/// `choose` is evaluated for each shard: its function must depend on its arguments only. Losses,
/// gradients, buffers and parameters are the same bits on every rank after every step.
///
/// Every backward is reduced: accumulation saves no communication. All ranks make the same calls. A
/// step allocates nothing once a batch of its size has been seen, and changes nothing if a shard or
/// another rank fails. Memory: about log2(S / ranks) + 1 more arrays of the size of the parameters.
template <class Policy, class Model, process_group Group>
class invariant_replicated : public detail::replica_of<Model> {
  using base = detail::replica_of<Model>;
  using base::engine_;

 public:
  using policy_type = Policy;
  using typename base::output_view;
  using typename base::value_type;

  static_assert(detail::is_only_invariant<Policy>,
                "ikebana: invariant goes with init_sync alone: it sums the gradients in its own "
                "way, and leaves the same buffers on every rank");

  static constexpr dim_t shards = policy_option<Policy, detail::invariant_key>::value;

  invariant_replicated(Model made, Group& group)
      : base{std::move(made)},
        group_{&group},
        buffers_of_shards_{static_cast<const Model&>(*this)},
        presence_{Model::presence()},
        sum_{check_ranks(group), shards,
             Model::layout().parameter_elements + 1 + presence_.length() +
                 buffers_of_shards_.length()},
        rows_(static_cast<std::size_t>(group.size())) {
    detail::verify_policy<Policy>(0, group, "replicate");
    verify_parameters(static_cast<const Model&>(*this), group, "replicate");
    if constexpr (Policy::syncs_at_start) {
      group.broadcast(Model::parameters(), 0);
      group.broadcast(Model::buffers(), 0);
    }
    // The state that dropout draws from.
    std::array<std::uint64_t, 3> drawn{engine_.network.seed.value, engine_.network.seed.path,
                                       engine_.network.step};
    group.broadcast(std::span<std::uint64_t>{drawn}, 0);
    engine_.network.seed = {drawn[0], drawn[1]};
    engine_.network.step = drawn[2];
  }

  invariant_replicated(invariant_replicated&&) noexcept = default;
  /// A copy would be a replica unknown to the other ranks. Copy the weights: get_state_dict,
  /// load_state_dict.
  invariant_replicated(const invariant_replicated&) = delete;

  /// The output for inputs of this rank only, in evaluation mode. Throws state_error in training
  /// mode, which uses train_step or loss_backward.
  template <class... X>
      output_view operator()(const X&... x) & requires(Model::template takes<X...>) {
    return forward(x...);
  }
  template <class... X>
  requires(!Model::template takes<X...>) auto operator()(
      const X&...) & -> decltype(detail::refuse<Model::template check_call<X...>>());
  template <class... X>
  auto operator()(const X&...)
      const& -> decltype(detail::refuse_for<detail::misuse::call_of_a_const_model, X...>());
  template <class... X>
  auto operator()(const X&...) && -> decltype(detail::refuse_for<
                                              detail::misuse::call_of_a_temporary_model, X...>());
  template <class... X>
      output_view forward(const X&... x) & requires(Model::template takes<X...>) {
    if (Model::is_training())
      throw state_error(
          "an invariant replica trains by train_step or loss_backward; forward is for evaluation: "
          "call eval() first");
    return Model::forward(x...);
  }
  template <class... X>
  requires(!Model::template takes<X...>) auto forward(
      const X&...) & -> decltype(detail::refuse<Model::template check_call<X...>>());

  /// The rows of a global batch of `rows` that this rank trains on.
  index_range part(dim_t rows) const { return invariant_rows(rows, shards, sum_.own_shards()); }
  /// The shards that this rank runs.
  index_range own_shards() const { return sum_.own_shards(); }

  /// The error of a training step of which every rank processes a part, if any; a constant
  /// expression.
  template <class X, class Y, class Loss>
  static constexpr diagnostic check_step() {
    if constexpr (tensor_like<Y>)
      return Model::template check_step<typename detail::batch_of<X>::type, detail::rows_view<Y>,
                                        Loss>();
    else
      return Model::template check_step<X, Y, Loss>();
  }
  template <class X, class Y, class Loss>
  static constexpr auto find_step_refusal() {
    return detail::find_refusal<check_step<X, Y, Loss>>();
  }

  /// One training step on this rank's part of the batch, a tensor or `inputs(...)`. Returns the
  /// loss of the global batch, the same on every rank. If the parts are inconsistent, every rank
  /// throws the same shape_error before anything has changed.
  template <class X, class Y, class Loss, class Optimizer>
  requires(detail::accepts_train_step<invariant_replicated, X, Y, Loss, Optimizer&>) value_type
      train_step(const X& x, const Y& target, const Loss& loss, Optimizer& optimizer) {
    detail::check_optimizer(*this, optimizer);
    const value_type value = run_shards(x, target, loss, false);
    optimizer.step();
    return value;
  }
  template <class... A>
  requires(!detail::accepts_train_step<invariant_replicated, A...>) auto train_step(A&&...)
      -> decltype(detail::refuse_train_step<invariant_replicated, A...>());
  template <class... A>
  auto train_step(const A&...) const
      -> decltype(detail::refuse_for<detail::misuse::training_of_a_const_model, A...>());

  /// The same without the optimizer: adds the gradients of the global batch to the existing ones.
  template <class X, class Y, class Loss>
  requires(detail::accepts_loss_backward<invariant_replicated, X, Y, Loss>) value_type
      loss_backward(const X& x, const Y& target, const Loss& loss) {
    return run_shards(x, target, loss, true);
  }
  template <class... A>
  requires(!detail::accepts_loss_backward<invariant_replicated, A...>) auto loss_backward(A&&...)
      -> decltype(detail::refuse_loss_backward<invariant_replicated, A...>());
  template <class... A>
  auto loss_backward(const A&...) const
      -> decltype(detail::refuse_for<detail::misuse::training_of_a_const_model, A...>());

  /// Exists for programs written for `replicate`, and has no effect: every backward is reduced and
  /// accumulates in the same gradients.
  struct [[nodiscard]] no_sync_guard {
    no_sync_guard() = default;
    no_sync_guard(const no_sync_guard&) = delete;
    ~no_sync_guard() {}
  };
  no_sync_guard no_sync() { return {}; }

  Group& group() const { return *group_; }

 private:
  static Group& check_ranks(Group& group) {
    if (group.size() > shards)
      throw state_error("replicate: invariant<" + std::to_string(shards) + "> has no shard for " +
                        std::to_string(group.size()) + " ranks");
    return group;
  }

  // Not generic lambdas, which g++ 12 does not compile here.
  struct prepare_one {
    invariant_replicated& self;

    template <class X>
    void operator()(const X& x) const {
      shape_list shapes;
      if constexpr (detail::is_input_pack<X>)
        std::apply([&](const auto&... each) { shapes = Model::arguments::shapes(each...); },
                   x.items);
      else
        shapes = Model::arguments::shapes(x);
      self.engine_.network.prepare_for(shapes);
    }
  };

  template <class Loss, class Y>
  struct run_one {
    invariant_replicated& self;
    const Loss& loss;
    Y target;

    template <class X>
    value_type operator()(const X& x) const {
      return self.Model::run_loss(x, target, loss, false, detail::no_listener{});
    }
  };

  /// Prepares for shards of this many rows, and checks those of this rank.
  template <class X, class Y, class Loss>
  void prepare_shards(const X& x, const Y& target, const Loss& loss, dim_t all, dim_t size) {
    if (size == 0) return;
    using batch = detail::batch_of<X>;
    batch::with(x, {0, size}, prepare_one{*this});
    const index_range own = sum_.own_shards();
    for (dim_t s = own.begin; s < own.end; ++s) {
      const index_range rows = local_rows(all, s);
      if (rows.size() == size)
        loss.validate(engine_.tables().current.output(),
                      detail::batch_rows_of<Y>::make(target, rows));
    }
  }

  /// The rows of a shard within the rows of this rank.
  index_range local_rows(dim_t all, dim_t shard) const {
    const dim_t first = invariant_rows(all, shards, sum_.own_shards()).begin;
    const index_range rows = invariant_rows(all, shards, index_range{shard, shard + 1});
    return {rows.begin - first, rows.end - first};
  }

  /// While it exists, backward writes to other memory; at the end, everything that a step changes
  /// is restored, except the buffers after a completed step.
  struct running {
    invariant_replicated& self;
    std::uint64_t step = self.engine_.network.step;
    std::uint32_t stream = self.engine_.network.stream;
    bool completed = false;

    ~running() {
      write_gradients_to(self.engine_.network.memory.gradients.data());
      self.engine_.network.stream = stream;
      if (completed) return;
      self.engine_.network.step = step;
      self.buffers_of_shards_.restore(self.Model::buffers());
      self.presence_.restore(self.Model::presence());
    }
    void write_gradients_to(value_type* to) {
      auto& t = self.engine_.tables();
      for (std::size_t i = 0; i < Model::parameter_count; ++i)
        t.gradients[i] = to + t.layout.offsets[i];
    }
  };

  template <class X, class Y, class Loss>
  value_type run_shards(const X& x, const Y& target, const Loss& loss, bool accumulate) {
    using batch = detail::batch_of<X>;
    const dim_t mine = batch::rows(x);
    const dim_t all = detail::agree_on_rows(
        *group_, shards, mine == target.extents()[0] ? mine : dim_t{-1}, std::span{rows_});
    const dim_t least = all / shards;
    const bool equal = all % shards == 0;
    if (!equal) prepare_shards(x, target, loss, all, least + 1);
    prepare_shards(x, target, loss, all, least);

    // Equal shards are averaged; others are weighted by their rows.
    const bool weighted = !equal && !detail::is_sum(loss);
    // The gradients are followed by the loss, the reached parameters and the buffers.
    const dim_t elements = Model::layout().parameter_elements;
    const dim_t reached = elements + 1, state = reached + presence_.length();
    buffers_of_shards_.begin(Model::buffers());
    presence_.begin(Model::presence());
    sum_.clear();
    running run{*this};
    const index_range own = sum_.own_shards();
    for (dim_t s = own.begin; s < own.end; ++s) {
      value_type* const to = sum_.next();
      const index_range rows = local_rows(all, s);
      if (rows.size() > 0) {
        const value_type share = equal ? value_type{1} : static_cast<value_type>(rows.size());
        buffers_of_shards_.restore(Model::buffers());
        presence_.begin_shard(Model::presence());
        engine_.network.step = run.step;
        engine_.network.stream = static_cast<std::uint32_t>(s);
        run.write_gradients_to(to);
        const detail::weighted_loss<Loss, value_type> part{loss, weighted ? share : value_type{1}};
        to[elements] = batch::with(x, rows,
                                   run_one<decltype(part), detail::rows_view<Y>>{
                                       *this, part, detail::batch_rows_of<Y>::make(target, rows)});
        presence_.take(Model::presence(), to + reached);
        buffers_of_shards_.take(Model::buffers(), share, to + state, s == own.begin);
      }
      sum_.add();
    }
    const value_type* const total = sum_.total();
    buffers_of_shards_.share(*group_);

    const value_type divisor = static_cast<value_type>(weighted ? all : shards);
    value_type* const mean = engine_.network.memory.gradients.data();
    if (accumulate)
      for (dim_t i = 0; i < elements; ++i) mean[i] += total[i] / divisor;
    else
      for (dim_t i = 0; i < elements; ++i) mean[i] = total[i] / divisor;
    presence_.finish(total + reached, accumulate, Model::presence());
    buffers_of_shards_.finish(total + state, static_cast<value_type>(equal ? shards : all),
                              Model::buffers());
    engine_.network.step = run.step + (Model::is_training() ? 1 : 0);
    run.completed = true;
    return total[elements] / divisor;
  }

  Group* group_;
  detail::invariant_buffers<value_type> buffers_of_shards_;
  detail::invariant_presence presence_;
  detail::invariant_sum<value_type, Group> sum_;
  std::vector<dim_t> rows_;
};

}  // namespace ikebana
