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
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

namespace detail {

/// The buckets of a model whose parameters are laid out as given: cut at parameters, in the order
/// of the buffer.
template <class T, program_sizes N>
constexpr bucket_plan<N.parameters> buckets_of(const parameter_layout<N>& layout,
                                               std::span<const dim_t> caps) {
  std::array<dim_t, N.parameters> ends{};
  for (std::size_t i = 0; i < N.parameters; ++i) ends[i] = layout.offsets[i];
  for (std::size_t i = 1; i < N.parameters; ++i)
    for (std::size_t j = i; j > 0 && ends[j - 1] > ends[j]; --j) std::swap(ends[j - 1], ends[j]);
  for (std::size_t i = 0; i < N.parameters; ++i)
    ends[i] = (i + 1 < N.parameters ? ends[i + 1] : layout.parameter_elements) *
              static_cast<dim_t>(sizeof(T));
  return plan_buckets(ends, caps);
}

/// What a parameter or buffer is, as the ranks must agree on it. Buffers are numbered after
/// parameters.
struct state_identity {
  path_text path;
  std::uint64_t hash;
};

template <class Model>
state_identity identify_state(const Model& m, std::size_t i) {
  const auto& p = m.current_program();
  const std::size_t parameters = p.all_parameters().size();
  dtype type = dtype_of<typename Model::value_type>;
  path_text path, extents;
  if (i < parameters) {
    path = p.path(p.parameters[i]);
    extents.append(" ").append(p.parameters[i].spec.extents);
  } else {
    const program_buffer& buffer = p.buffers[i - parameters];
    path = p.path(buffer);
    extents.append(" ").append(buffer.spec.extents);
    if (!buffer.spec.follows_model) type = buffer.spec.type;
  }
  return {path, hash_path(extents.append(name(type)).view(), hash_path(path.view()))};
}

/// Compares paths, types, shapes and order across ranks; throws state_error on every rank if they
/// differ, with the first path that does. Allocates.
template <class Model, class Group>
void compare_states(const Model& m, Group& group) {
  const auto& p = m.current_program();
  struct fingerprint {
    std::size_t count;
    std::uint64_t hash;
    bool operator==(const fingerprint&) const = default;
  };
  fingerprint mine{p.all_parameters().size() + p.all_buffers().size(), 0};
  for (std::size_t i = 0; i < mine.count; ++i)
    mine.hash = mine.hash * 0x100000001b3u ^ identify_state(m, i).hash;
  const auto world = static_cast<std::size_t>(group.size());
  std::vector<fingerprint> all(world);
  exchange(group, mine, std::span{all});
  // Every rank sees the same fingerprints, so all go the same way from here.
  std::size_t common = mine.count;
  bool equal = true;
  for (const fingerprint& f : all) {
    common = f.count < common ? f.count : common;
    equal = equal && f == all[0];
  }
  if (equal) return;
  std::vector<std::uint64_t> hashes(world);
  for (std::size_t i = 0; i < common; ++i) {
    const state_identity own = identify_state(m, i);
    exchange(group, own.hash, std::span{hashes});
    for (std::size_t r = 1; r < world; ++r)
      if (hashes[r] != hashes[0])
        throw state_error("replicate: rank 0 and rank " + std::to_string(r) +
                          " have different models: the first difference is at " + own.path.c_str() +
                          ", as rank " + std::to_string(group.rank()) + " names it");
  }
  std::string counts;
  for (std::size_t r = 0; r < world; ++r)
    counts +=
        (r == 0 ? "rank " : ", rank ") + std::to_string(r) + " has " + std::to_string(all[r].count);
  throw state_error("replicate: ranks have different numbers of parameters and buffers: " + counts);
}

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

  replicated(Model made, Group& group) : Model{std::move(made)}, group_{&group} {
    detail::compare_states(static_cast<const Model&>(*this), group);
    if constexpr (Policy::syncs_at_start) {
      group.broadcast(Model::parameters(), 0);
      group.broadcast(Model::buffers(), 0);
    }
    buckets_ = detail::buckets_of<value_type>(Model::layout(), Policy::caps);
    Model::set_random_stream(static_cast<std::uint32_t>(group.rank()));
  }

  replicated(replicated&&) noexcept = default;
  /// A copy would be a replica that no other rank knows. Copy the weights: get_state_dict,
  /// load_state_dict.
  replicated(const replicated&) = delete;

  using Model::operator();
  using Model::operator[];
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
  using Model::seed;
  using Model::train;
  using Model::workspace_bytes;
  using Model::zero_grad;

  /// As model::backward; then the gradients are averaged over the ranks.
  template <tensor_like G>
  void backward(const G& output_gradient) {
    Model::set_output_gradient(output_gradient);
    if (synchronises_) {
      reducer reduce{*this};
      Model::run_backward(true, reduce);
      complete(reduce);
    } else {
      Model::run_backward(true, detail::nobody_listens{});
    }
  }

  /// The same with the gradients of the inputs, which are this rank's own.
  template <tensor_like G, tensor_like... X>
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
  template <tensor_like X, tensor_like Y, class Loss, class Optimizer>
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
  template <tensor_like X, tensor_like Y, class Loss>
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

 private:
  static constexpr std::size_t most_buckets = Model::parameter_count;
  using hook_type = typename Policy::hook_type;
  using bucket_type = gradient_bucket<value_type>;
  using work_type = decltype(std::declval<hook_type&>().start(std::declval<bucket_type>(),
                                                              std::declval<Group&>()));

  bucket_type bucket(std::size_t b) {
    const bucket_range& range = buckets_[b];
    constexpr auto element = static_cast<dim_t>(sizeof(value_type));
    return {Model::gradients().subspan(static_cast<std::size_t>(range.begin / element),
                                       static_cast<std::size_t>(range.bytes() / element)),
            b, buckets_.size()};
  }

  /// Hears of finished gradients while backward runs, and starts the buckets that are complete.
  struct reducer {
    replicated& self;
    std::size_t started = 0;
    std::size_t finished = 0;

    void operator()(dim_t elements) {
      const dim_t bytes = elements * static_cast<dim_t>(sizeof(value_type));
      while (started < self.buckets_.size() && self.buckets_[started].end <= bytes) {
        self.works_[started] = self.hook_.start(self.bucket(started), *self.group_);
        ++started;
      }
      while (finished < started && self.works_[finished].poll()) finish();
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

  /// Waits for all buckets, in their order.
  void complete(reducer& reduce) {
    reduce(Model::layout().parameter_elements);
    while (reduce.finished < reduce.started) {
      works_[reduce.finished].wait();
      reduce.finish();
    }
    if constexpr (Policy::broadcasts_buffers)
      if (!Model::buffers().empty()) group_->broadcast(Model::buffers(), 0);
  }

  Group* group_;
  hook_type hook_{};
  ikebana::bucket_plan<most_buckets> buckets_{};
  std::array<work_type, most_buckets> works_{};
  bool synchronises_ = true;
};

namespace detail {
template <class Policy, class Model, class Group>
inline constexpr bool is_replicated<replicated<Policy, Model, Group>> = true;
}  // namespace detail

/// Makes the model one of `group.size()` replicas: `replicate<policy>(initialize<float, S>(net,
/// seed{1}), group)`. Compares the models of all ranks (state_error names the first path that
/// differs, on every rank) and copies the parameters and buffers of rank 0 to all. The group must
/// outlive the result. Allocates.
template <class Policy = replicate_policy<>, class Model, process_group Group>
auto replicate(Model model, Group& group) {
  static_assert(is_replicate_policy<Policy>,
                "ikebana: replicate<Policy> expects a replicate_policy<...>");
  static_assert(!detail::is_replicated<Model>,
                "ikebana: replicate was already applied to this model");
  static_assert(!any_module<Model>,
                "ikebana: replicate needs an initialized model: initialize<T, shape>(module, seed) "
                "gives one");
  if constexpr (is_replicate_policy<Policy> && !detail::is_replicated<Model> && !any_module<Model>)
    return replicated<Policy, Model, Group>(std::move(model), group);
}

}  // namespace ikebana
