#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>

#include "ikebana/core/dtype.hpp"
#include "ikebana/replicate/comm_hook.hpp"
#include "ikebana/replicate/gradient_bucket.hpp"
#include "ikebana/replicate/mixed/gradient_cast.hpp"
#include "ikebana/replicate/optimizer_in_backward.hpp"
#include "ikebana/replicate/optimizer_shards.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

namespace detail {

struct shard_optimizer_key {};

/// Replaces a policy's hook: averages what each rank updates, only there. Early: an optimizer then
/// steps, and the parameters are gathered, during backward.
template <class Hook, bool Early>
class shard_hook {
 public:
  static constexpr bool is_known = !std::is_void_v<typename wire_of<Hook, float>::type>;
  static constexpr hook_result result = hook_result::average;
  static constexpr std::size_t stages = Early ? 2 : 1;

  template <class T, class Group>
  using shards_type =
      optimizer_shards<T, Group, std::conditional_t<is_known, typename wire_of<Hook, T>::type, T>>;

  template <floating T, process_group Group>
  void prepare(std::span<const gradient_bucket<T>> buckets, Group& group) {
    shards_ = {new shards_type<T, Group>(buckets, group),
               [](void* s) { delete static_cast<shards_type<T, Group>*>(s); }};
  }
  template <floating T, process_group Group>
  auto start(gradient_bucket<T> bucket, Group&) {
    shard_work<work_of<Group>> work;
    work.even = shards<T, Group>().reduce(2 * bucket.index);
    work.left_over = shards<T, Group>().reduce(2 * bucket.index + 1);
    return work;
  }
  template <floating T, process_group Group>
  auto proceed(gradient_bucket<T> bucket, Group&, std::size_t) {
    take(bucket.index, shards<T, Group>());
    return shards<T, Group>().step(bucket);
  }
  template <floating T, process_group Group>
  void finish(gradient_bucket<T> bucket, Group&) {
    if constexpr (Early)
      shards<T, Group>().finish_step(bucket.index);
    else
      take(bucket.index, shards<T, Group>());
  }

  template <class T, class Group>
  shards_type<T, Group>& shards() {
    return *static_cast<shards_type<T, Group>*>(shards_.get());
  }

 private:
  template <class Shards>
  static void take(std::size_t bucket, Shards& shards) {
    shards.take(2 * bucket);
    shards.take(2 * bucket + 1);
  }

  /// At a fixed address, since optimizers keep it.
  std::unique_ptr<void, void (*)(void*)> shards_{nullptr, [](void*) {}};
};

struct ignored_key;
struct ignored_if_key;
struct delay_all_reduce_key;
struct groups_key;
struct gradient_accumulation_key;
struct gradient_sync_key;

}  // namespace detail

/// Whether ranks share the optimizer's work and memory (ZeRO stage 1: Rajbhandari et al., ZeRO:
/// Memory Optimizations Toward Training Trillion Parameter Models, 2020; PyTorch's
/// ZeroRedundancyOptimizer). Each bucket is divided among the ranks. Backward reduce-scatters, so
/// that each rank has the averages of its own part only. An optimizer created for the model keeps
/// the state of its rank's elements and updates only those; its `step` returns when all ranks have
/// all parameters. The bits are those of an unsharded step.
///
///     auto net = ike::replicate<ike::replicate_policy<ike::shard_optimizer<true>>>(made, group);
///     ike::adam optimizer{net, {.lr = 1e-3}};  // exp_avg: 1/ranks of the parameters
///     net.train_step(x, y, loss, optimizer);
///
/// - All ranks must call `step()`, and so `clip_grad_norm`, `get_optimizer_state_dict`,
///   `get_training_state`, `gather_gradients`, and a backward that adds to averaged gradients,
///   which gathers them first.
/// - `gradients()` after a synchronised backward contains averages at this rank's elements and this
///   rank's own sums elsewhere; `gather_gradients()` gives every rank all averages.
/// - Works with the default comm_hook and with bf16_compress or fp16_compress. With
///   optimizer_in_backward, each bucket is stepped and gathered during backward (PyTorch's
///   ddp_zero_hook).
/// - A custom optimizer asks the model's `shards()` what to update.
template <bool Value>
struct shard_optimizer {
  using replicate_key = detail::shard_optimizer_key;
  static constexpr bool value = Value;
};

template <>
struct shard_optimizer<true> {
  using replicate_key = detail::shard_optimizer_key;
  static constexpr bool value = true;

  template <class Hook, class... All>
  using hook = detail::shard_hook<Hook, detail::find_option<detail::optimizer_in_backward_key,
                                                            std::false_type, All...>::type::value>;

  template <class Model, class Group>
  class feature {
   public:
    template <class R>
    void prepare(R& r) {
      using policy = typename R::policy_type;
      static_assert(policy::hook_type::is_known,
                    "ikebana: shard_optimizer reduces gradients only where they are needed, which "
                    "this comm_hook cannot: it goes with the default hook and with bf16_compress");
      const auto without = []<class Key>(std::type_identity<Key>) {
        return std::is_void_v<typename policy::template option<Key, void>>;
      };
      constexpr bool takes_all = without(std::type_identity<detail::ignored_key>{}) &&
                                 without(std::type_identity<detail::ignored_if_key>{}) &&
                                 without(std::type_identity<detail::delay_all_reduce_key>{});
      static_assert(takes_all,
                    "ikebana: shard_optimizer shares all parameters, so none can be ignored or "
                    "reduced apart (delay_all_reduce)");
      constexpr bool is_uniform =
          without(std::type_identity<detail::groups_key>{}) &&
          without(std::type_identity<detail::gradient_sync_key>{}) &&
          without(std::type_identity<detail::gradient_accumulation_key>{}) &&
          std::tuple_size_v<typename policy::overrides> == 0;
      static_assert(is_uniform,
                    "ikebana: shard_optimizer treats all parameters alike: it does not go with "
                    "groups_by_module, override_at, requires_gradient_sync or "
                    "gradient_accumulation");
      shards_ = &r.hook().template shards<typename Model::value_type, Group>();
      shards_->set_parameters(r.parameters());
    }
    template <class R>
    void before_backward(R& r, bool accumulates) {
      shards_->begin_backward(accumulates, r.synchronises());
    }
    template <class R>
    void after_zero_grad(R&) {
      shards_->clear();
    }

    auto* shards() const { return shards_; }

   private:
    detail::gradient_shards<typename Model::value_type>* shards_ = nullptr;
  };
};

namespace detail {

template <class Policy>
inline constexpr bool shards_optimizer =
    Policy::template option<shard_optimizer_key, shard_optimizer<false>>::value;

}  // namespace detail
}  // namespace ikebana
