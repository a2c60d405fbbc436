#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/calls/optimizer_check.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/module/path_pattern.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/replicate/buckets/buckets.hpp"
#include "ikebana/replicate/buckets/model_buckets.hpp"
#include "ikebana/replicate/buckets/reducer.hpp"
#include "ikebana/replicate/buckets/row_reduction.hpp"
#include "ikebana/replicate/buffer_sync.hpp"
#include "ikebana/replicate/comm_hook.hpp"
#include "ikebana/replicate/elastic.hpp"
#include "ikebana/replicate/exchange_in_group.hpp"
#include "ikebana/replicate/feature.hpp"
#include "ikebana/replicate/join.hpp"
#include "ikebana/replicate/mixed/cast_call.hpp"
#include "ikebana/replicate/mixed_precision.hpp"
#include "ikebana/replicate/optimizer_in_backward.hpp"
#include "ikebana/replicate/parameter_groups.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/policy_fingerprint.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/replica_of.hpp"
#include "ikebana/replicate/replica_states.hpp"
#include "ikebana/replicate/shard_optimizer.hpp"
#include "ikebana/replicate/synchronised_replica.hpp"
#include "ikebana/replicate/unused.hpp"

namespace ikebana {

namespace detail {

/// The options of a policy without mixed_precision.
struct casts_nothing {
  static constexpr bool casts_inputs = false;
};

/// The name appears in the error for a copy: get_state_dict and load_state_dict copy weights.
struct a_replica_is_not_copied_but_its_state {};

namespace misuse {

IKEBANA_MISUSE(part_of_a_replica,
               "a replicated model has no parts: replicate a model of the part alone");

}  // namespace misuse

}  // namespace detail

/// A model that trains together with the replicas of the other ranks: the calls, paths and states
/// of the original model, with a backward that averages the gradients over the ranks, bucket by
/// bucket, while it runs. Created by `replicate`.
///
/// Gradients become (1/ranks) times the sum over ranks and over the batches since zero_grad.
/// Buffers are those of rank 0 after every synchronised backward. Every rank must make the same
/// calls in the same order; forward alone does not communicate, but for sync_batch_norm. Steps
/// allocate nothing. Throws communication_error if another rank fails.
template <class Policy, class Model, process_group Group>
class replicated : public detail::replica_of<Model>,
                   public synchronised_replica<replicated<Policy, Model, Group>, Policy>,
                   public joining_replica<replicated<Policy, Model, Group>, Policy>,
                   public elastic_replica<replicated<Policy, Model, Group>, Policy, Group> {
  using base = detail::replica_of<Model>;
  using base::engine_;
  using synchronisation = synchronised_replica<replicated<Policy, Model, Group>, Policy>;
  using joining = joining_replica<replicated<Policy, Model, Group>, Policy>;
  using elasticity = elastic_replica<replicated<Policy, Model, Group>, Policy, Group>;
  friend synchronisation;
  friend joining;
  friend elasticity;

  /// Whether the gradients of some parameters are rows.
  static constexpr bool has_rows = Model::row_parameters > 0;
  static constexpr bool is_mixed = policy_has<Policy, detail::mixed_precision_key>;
  /// Whether a call with these arguments first casts any of them to the model's type.
  template <class... X>
  static constexpr bool casts =
      policy_option<Policy, detail::mixed_precision_key, detail::casts_nothing>::casts_inputs &&
      (detail::is_cast_argument<typename base::value_type, std::remove_cvref_t<X>> || ...);

 public:
  using policy_type = Policy;
  using group_type = Group;
  /// Whether gradients are consumed during backward: optimizer_in_backward.
  static constexpr bool steps_in_backward = detail::steps_in_backward<Policy>;
  using synchronisation::no_sync;
  using synchronisation::synchronises;
  using typename base::output_view;
  using typename base::value_type;

  static_assert(
      comm_hook_for<typename Policy::hook_type, value_type, Group>,
      "ikebana: comm_hook expects a hook: a type with `result`, start(bucket, group) that "
      "returns a handle, and finish(bucket, group)");

  replicated(Model made, Group& group, typename Policy::hook_type hook)
      : base{std::move(made)},
        buffer_sync_{static_cast<Model&>(*this)},
        reducer_{start(group, hook), std::move(hook), Model::gradients(), plan(), delayed()} {
    Model::set_random_stream(static_cast<std::uint32_t>(group.rank()));
    if constexpr (has_rows) {
      rows_ = {Model::gradients(), detail::row_parameters_of<Policy>(static_cast<Model&>(*this))};
      rows_.prepare(group);
    }
    if constexpr (Model::may_lack_gradients)
      unused_.set_up(reducer_.plan().parameters(), *Model::presence(), Policy::caps);
    detail::prepare_features(features_, *this);
    if constexpr (is_mixed) {
      auto& boundary = feature<detail::mixed_precision_key>().boundary();
      engine_.set_boundary(&boundary, boundary.parameters(), boundary.gradients());
    }
  }

  replicated(replicated&&) noexcept = default;
  /// A copy would be a replica unknown to the other ranks.
  replicated(const replicated&, detail::a_replica_is_not_copied_but_its_state = {}) = delete;

  /// See model::operator().
  template <class... X>
      output_view operator()(const X&... x) & requires(Model::template takes<X...>) {
    return forward(x...);
  }
  template <class... X>
  requires(detail::keeps_temporary<X...>&& Model::template takes<std::remove_cvref_t<X>...>)
      output_view
      operator()(X&&... x) & {
    const output_view y = forward(std::as_const(x)...);
    engine_.tables().kept_inputs.keep(std::forward<X>(x)...);
    return y;
  }
  template <class... X>
  requires(detail::has_const_temporary<X...> && !casts<X...>) auto operator()(
      X&&...) & -> decltype(detail::refuse_for<detail::misuse::call_with_a_const_temporary,
                                               X...>());
  template <class... X>
  requires(casts<X...>) output_view operator()(X&&... x) & {
    return forward(std::forward<X>(x)...);
  }
  template <class... X>
  requires(!Model::template takes<X...> && !casts<X...>) auto operator()(
      const X&...) & -> decltype(detail::refuse<Model::template check_call<X...>>());
  template <class... X>
  auto operator()(const X&...)
      const& -> decltype(detail::refuse_for<detail::misuse::call_of_a_const_model, X...>());
  template <class... X>
  auto operator()(const X&...) && -> decltype(detail::refuse_for<
                                              detail::misuse::call_of_a_temporary_model, X...>());

  /// A replica has no parts: the gradients of a part would not be averaged over the ranks.
  template <detail::literal Path>
  auto part() & -> decltype(detail::refuse_for<detail::misuse::part_of_a_replica,
                                               detail::pattern_list<Path>>());

  /// See model::forward.
  template <class... X>
      output_view forward(const X&... x) & requires(Model::template takes<X...>) {
    begin_forward();
    [[maybe_unused]] const exchange_of_call exchange{group()};
    return Model::forward(x...);
  }
  template <class... X>
  requires(detail::keeps_temporary<X...>&& Model::template takes<std::remove_cvref_t<X>...>)
      output_view forward(X&&... x)
  &{
    const output_view y = forward(std::as_const(x)...);
    engine_.tables().kept_inputs.keep(std::forward<X>(x)...);
    return y;
  }
  template <class... X>
  requires(detail::has_const_temporary<X...> && !casts<X...>) auto forward(
      X&&...) & -> decltype(detail::refuse_for<detail::misuse::call_with_a_const_temporary,
                                               X...>());
  /// Under mixed_precision, casts inputs of another floating-point type, which allocates.
  template <class... X>
  requires(casts<X...>) output_view forward(X&&... x)
  &{
    return detail::call_with_cast<value_type>(
        [this](auto& tensors, const auto&... argument) {
          const output_view y = forward(argument...);
          std::apply(
              [this](auto&&... one) {
                engine_.tables().kept_inputs.keep(std::forward<decltype(one)>(one)...);
              },
              std::move(tensors));
          return y;
        },
        std::forward<X>(x)...);
  }
  template <class... X>
  requires(!Model::template takes<X...> && !casts<X...>) auto forward(
      const X&...) & -> decltype(detail::refuse<Model::template check_call<X...>>());

  /// Sets all gradients to zero.
  void zero_grad() {
    drain();
    restarted_ = true;
    Model::zero_grad();
    if constexpr (Model::may_lack_gradients) unused_.forget();
    detail::tell_after_zero_grad(features_, *this);
  }

  /// Like model::backward, then averages the gradients over the ranks.
  template <class G>
  requires(detail::accepts_backward<Model, G>) void backward(const G& output_gradient) {
    refuse_in_backward_steps();
    const abandon_on_exception guard{*this};
    Model::begin_gradients(output_gradient);
    [[maybe_unused]] const exchange_of_call exchange{group()};
    engine_.run_backward(true, listener(true));
    end_backward();
  }

  /// The same, with the gradients of the inputs, which are local to this rank.
  template <class G, tensor_like... X>
  requires(sizeof...(X) > 0 &&
           detail::accepts_backward<Model, G, X...>) void backward(const G& output_gradient,
                                                                   X&&... input_gradients) {
    refuse_in_backward_steps();
    const abandon_on_exception guard{*this};
    Model::begin_gradients(output_gradient, input_gradients...);
    [[maybe_unused]] const exchange_of_call exchange{group()};
    {
      const detail::input_gradients_scope scope{engine_};
      engine_.run_backward(true, listener(true));
    }
    end_backward();
  }
  template <class... A>
  requires(!detail::accepts_backward<Model, A...>) auto backward(A&&...)
      -> decltype(detail::refuse_backward<Model, A...>());
  template <class... A>
  auto backward(const A&...) const
      -> decltype(detail::refuse_for<detail::misuse::training_of_a_const_model, A...>());

  /// See model::find_step_refusal.
  template <class X, class Y, class Loss>
  static constexpr auto find_step_refusal() {
    if constexpr (casts<X>)
      return detail::accepted{};
    else
      return Model::template find_step_refusal<X, Y, Loss>();
  }

  /// Like model::train_step, with the gradients averaged over the ranks. Returns the loss of this
  /// rank.
  template <class X, class Y, class Loss, class Optimizer>
  requires(detail::accepts_train_step<replicated, X, Y, Loss, Optimizer&> && !casts<X>) value_type
      train_step(const X& x, const Y& target, const Loss& loss, Optimizer& optimizer) {
    detail::check_optimizer(*this, optimizer);
    detail::tell_before_train_step(features_, optimizer);
    const value_type value = loss_and_gradients(x, target, detail::as_loss(loss), false);
    step(optimizer);
    return value;
  }
  template <class X, class Y, class Loss, class Optimizer>
  requires(detail::accepts_train_step<replicated, X, Y, Loss, Optimizer&>&& casts<X>) value_type
      train_step(const X& x, const Y& target, const Loss& loss, Optimizer& optimizer) {
    return with_cast(x,
                     [&](const auto& cast) { return train_step(cast, target, loss, optimizer); });
  }
  template <class... A>
  requires(!detail::accepts_train_step<replicated, A...>) auto train_step(A&&...)
      -> decltype(detail::refuse_train_step<replicated, A...>());
  template <class... A>
  auto train_step(const A&...) const
      -> decltype(detail::refuse_for<detail::misuse::training_of_a_const_model, A...>());

  /// Like model::loss_backward: adds this batch's gradients to the accumulated ones, then averages
  /// the sum over the ranks.
  template <class X, class Y, class Loss>
  requires(detail::accepts_loss_backward<replicated, X, Y, Loss> && !casts<X>) value_type
      loss_backward(const X& x, const Y& target, const Loss& loss) {
    refuse_in_backward_steps();
    return loss_and_gradients(x, target, detail::as_loss(loss), true);
  }
  template <class X, class Y, class Loss>
  requires(detail::accepts_loss_backward<replicated, X, Y, Loss>&& casts<X>) value_type
      loss_backward(const X& x, const Y& target, const Loss& loss) {
    return with_cast(x, [&](const auto& cast) { return loss_backward(cast, target, loss); });
  }
  template <class... A>
  requires(!detail::accepts_loss_backward<replicated, A...>) auto loss_backward(A&&...)
      -> decltype(detail::refuse_loss_backward<replicated, A...>());
  template <class... A>
  auto loss_backward(const A&...) const
      -> decltype(detail::refuse_for<detail::misuse::training_of_a_const_model, A...>());

  /// The part of train_step after backward: the optimizer's step, with the steps that the policy's
  /// options add around it.
  template <class Optimizer>
  void step(Optimizer& optimizer) {
    drain();
    detail::step_with_features(features_, *this, optimizer);
  }

  Group& group() const { return reducer_.group(); }
  /// The slices of the gradients that are reduced together, in the order in which they become
  /// ready; printable.
  const auto& bucket_plan() const { return reducer_.plan(); }
  /// Whether buckets were rebuilt after the first synchronised backward; see static_graph.
  bool has_rebuilt_buckets() const {
    if constexpr (Model::may_lack_gradients)
      return unused_.has_rebuilt();
    else
      return false;
  }
  /// The number of ranks that reached a parameter before the last reduction, `"a.weight"_s`: all,
  /// if the network never leaves any out.
  template <class Path>
  int ranks_with_gradient(Path) const {
    const std::size_t place = Model::template place_of<Path>();
    if constexpr (Model::may_lack_gradients)
      return unused_.count(place);
    else
      return place < Model::parameter_count ? group().size() : 0;
  }
  /// The communication hook with its state.
  auto& hook() { return reducer_.hook(); }
  /// Under shard_optimizer: what an optimizer of this rank updates.
  parameter_shards<value_type>* shards() requires(detail::shards_optimizer<Policy>) {
    return feature<detail::shard_optimizer_key>().shards();
  }
  /// Under shard_optimizer: gives every rank all averaged gradients. All ranks must call it.
  void gather_gradients() requires(detail::shards_optimizer<Policy>) {
    drain();
    feature<detail::shard_optimizer_key>().shards()->gather_gradients();
  }
  /// The hook of the group at a path, `"head"_s`: the policy's, or that of an override_at.
  template <class Path>
  auto& hook(Path) {
    constexpr int g = groups::at(Path::c_str());
    static_assert(g >= 0, "ikebana: the policy has no group at this path");
    if constexpr (g >= 0)
      return reducer_.hooks().template get<groups::hooks[static_cast<std::size_t>(g)]>();
  }
  /// The buffer hook with its state.
  auto& buffer_hook() { return buffer_sync_.hook(); }
  /// The object of the policy's option for Key; see feature.hpp.
  template <class Key>
  auto& feature() {
    using type = typename policy_option<Policy, Key>::template feature<Model, Group>;
    return std::get<type>(features_);
  }

 private:
  /// Calls f(inputs(...)) with x, a tensor or a pack of tensors, after the cast.
  template <class X, class F>
  static value_type with_cast(const X& x, const F& f) {
    const auto call = [&](const auto&... argument) {
      return detail::call_with_cast<value_type>(
          [&](auto&, const auto&... cast) { return f(inputs(cast...)); }, argument...);
    };
    if constexpr (detail::is_input_pack<X>)
      return std::apply(call, x.items);
    else
      return call(x);
  }

  using elasticity::steps_;
  using joining::join_;
  using joining::restarted_;
  using synchronisation::is_last_backward_;
  using synchronisation::may_synchronise_;

  /// Refuses calls that use gradients later, or outside a train_step.
  static constexpr void refuse_in_backward_steps() {
    static_assert(
        !detail::steps_in_backward<Policy>,
        "ikebana: with optimizer_in_backward gradients are used up while backward runs, so "
        "train_step is the only way to make them: no loss_backward or backward without an "
        "optimizer, no no_sync, no join");
  }

  using hook_type = typename Policy::hook_type;
  using groups = detail::parameter_groups<Policy>;
  using features_type = typename Policy::template features<Model, Group>;

  /// Starts the reduction when backward begins, and tells the reducer what backward has finished.
  struct backward_listener {
    replicated& self;
    bool accumulate;

    void begin() const { self.begin_backward(accumulate); }
    void operator()(dim_t elements) const { self.reducer_.advance(elements, self.features_); }
    void before_leaf(int node) const { detail::tell_before_leaf_backward(self.features_, node); }
    void after_leaf(int node) const { detail::tell_after_leaf_backward(self.features_, node); }
  };

  auto listener(bool accumulate) {
    if constexpr (is_mixed)
      return detail::completed_at_boundary<value_type, backward_listener>{
          {*this, accumulate}, &feature<detail::mixed_precision_key>().boundary()};
    else
      return backward_listener{*this, accumulate};
  }

  /// Sums of leaves over the ranks of this replica, during a call.
  using exchange_of_call =
      std::conditional_t<detail::has_exchanges<Model>, detail::exchange_in_group<Group>,
                         detail::no_exchange>;

  /// What is in flight when an exception ends a backward must not outlive the group.
  struct abandon_on_exception {
    replicated& self;
    int before = std::uncaught_exceptions();
    ~abandon_on_exception() {
      if (std::uncaught_exceptions() > before && self.in_backward_) self.abandon();
      self.in_backward_ = false;
    }
  };

  void broadcast_states(Group& group, int from) {
    detail::broadcast_states<Policy>(static_cast<Model&>(*this), group, from);
  }
  /// Compares the ranks' policies, their run-time values and their models.
  void verify(Group& group, const hook_type& hook, std::span<const double> divide_factors,
              std::string_view who) const {
    detail::verify_policy<Policy>(detail::values_fingerprint(divide_factors, hook), group, who);
    detail::verify_states<Policy>(static_cast<const Model&>(*this), group, who);
  }
  void verify(Group& group, const hook_type& hook, std::string_view who) {
    verify(group, hook, reducer_.divide_factors(), who);
  }

  /// Discards a failed step.
  void forget_step() {
    join_.end();
    static_cast<void>(buffer_sync_.take_due());
    abandon();
    if constexpr (Model::may_lack_gradients) unused_.restart();
  }
  /// Continues in a group whose ranks have equal states.
  void enter(Group& group, hook_type hook) {
    reducer_.regroup(group, std::move(hook));
    if constexpr (has_rows) rows_.prepare(group);
    Model::zero_grad();
    restarted_ = true;
    Model::set_random_stream(static_cast<std::uint32_t>(group.rank()));
    detail::prepare_features(features_, *this);
  }

  /// Takes part in a synchronised backward of the others, without a batch: earlier sums that do not
  /// belong to what they sum now are dropped.
  void shadow() {
    const bool keeps = joining::keeps_gradients();
    if constexpr (detail::shards_optimizer<Policy>)
      if (!join_.others_restarted()) gather_gradients();
    if (!keeps) Model::zero_grad();
    const abandon_on_exception guard{*this};
    may_synchronise_ = true;
    is_last_backward_ = join_.others_are_last();
    begin_reduction(keeps, detail::backward_of::others);
    end_backward();
    is_last_backward_ = true;
  }

  /// Compares the ranks' policies and models, and makes the models equal.
  Group& start(Group& group, const hook_type& hook) {
    verify(group, hook, groups::divide_factors, "replicate");
    if constexpr (Policy::syncs_at_start) broadcast_states(group, 0);
    return group;
  }

  auto plan() const {
    return detail::buckets_of<value_type, Policy>(Model::current_program(), Model::layout());
  }
  auto delayed() const {
    return detail::delayed_of<Policy>(Model::current_program(), Model::layout());
  }

  template <class X, class Y, class Loss>
  value_type loss_and_gradients(const X& x, const Y& target, const Loss& loss, bool accumulate) {
    const abandon_on_exception guard{*this};
    begin_forward();
    [[maybe_unused]] const exchange_of_call exchange{group()};
    const value_type value = Model::run_loss(x, target, loss, accumulate, listener(accumulate));
    end_backward();
    return value;
  }

  void begin_forward() {
    if (!join_.on())
      buffer_sync_.before_forward(group(), Model::is_training());
    else if (Model::is_training())
      settle_buffers(true);
    detail::tell_before_forward(features_, *this);
  }

  /// In a join, called once between two synchronised backwards: broadcasts the buffers of the
  /// highest rank that continues.
  void settle_buffers(bool has_inputs) {
    if (!buffer_sync_.take_due()) return;
    const int source = join_.next_buffer_source(group(), has_inputs);
    if (source >= 0) buffer_sync_.run(group(), source);
  }

  void begin_backward(bool accumulate) {
    restarted_ = restarted_ || !accumulate;
    if (join_.on() && synchronises()) {
      drain();
      settle_buffers(true);
      join_.meet(group(), true, restarted_, is_last_backward_);
    }
    begin_reduction(accumulate, detail::backward_of::own);
  }

  void begin_reduction(bool accumulate, [[maybe_unused]] detail::backward_of whose) {
    in_backward_ = true;
    if constexpr (Model::may_lack_gradients) {
      drain();
      unused_.begin([this](const auto& f) { this->engine_.predict_reached(f); }, *Model::presence(),
                    Model::gradients(), reducer_, may_synchronise_, accumulate, whose);
    }
    if constexpr (has_rows) {
      drain();
      if (accumulate)
        rows_.scale_reduced([&](std::size_t g) { return reducer_.factor_of(g) / group().size(); });
      rows_.forget();
      rows_are_due_ = may_synchronise_;
    }
    reducer_.set_share(join_.template share<value_type>(group().size()));
    reducer_.begin(may_synchronise_, accumulate, features_);
    detail::tell_before_backward(features_, *this, accumulate);
  }

  /// Waits for what is in flight.
  void drain() {
    reducer_.drain(features_);
    if constexpr (has_rows)
      if (std::exchange(rows_are_due_, false))
        rows_.run(
            group(), [&](std::size_t g) { return reducer_.synchronises()[g]; },
            [&](std::size_t g) { return reducer_.divisor(g); });
    if constexpr (Model::may_lack_gradients)
      unused_.finish(*Model::presence(), Model::gradients(), reducer_);
  }
  void abandon() {
    reducer_.abandon();
    rows_are_due_ = false;
    if constexpr (Model::may_lack_gradients) unused_.abandon();
  }

  void end_backward() {
    reducer_.advance(Model::layout().parameter_elements, features_);
    if (synchronises()) restarted_ = false;
    if (!is_last_backward_) return;
    drain();
    if (synchronises()) buffer_sync_.after_backward(group(), join_.on());
    detail::tell_after_backward(features_, *this);
    if (synchronises()) ++steps_;
  }

  detail::buffer_sync<Policy, Group> buffer_sync_;
  detail::reducer<Policy, hook_type, value_type, Group, Model::parameter_count> reducer_;
  struct no_rows {};
  [[no_unique_address]] std::conditional_t<has_rows, detail::row_reduction<value_type, Group>,
                                           no_rows>
      rows_{};
  bool rows_are_due_ = false;  ///< After the backward that is running, or that was the last.
  struct nothing_unused {};
  [[no_unique_address]] std::conditional_t<
      Model::may_lack_gradients, detail::unused_parameters<Policy, Model, Group>, nothing_unused>
      unused_{};
  [[no_unique_address]] features_type features_{};
  bool in_backward_ = false;
};

}  // namespace ikebana
