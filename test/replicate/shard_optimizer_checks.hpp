#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/clip_grad.hpp"
#include "ikebana/optim/optimizer_state_dict.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/replicate/shard_optimizer.hpp"
#include "optimizer_run.hpp"

// Sharding the optimizer on every kind of process group. All ranks call each function, which
// returns the number of failures on this rank: 0.
namespace shard_optimizer_checks {

using namespace optimizer_run;

template <class... More>
using sharded = ike::replicate_policy<ike::shard_optimizer<true>, More...>;

/// The same bits as without, for every optimizer.
template <class T, class Group>
int optimizers(Group& group) {
  int wrong = 0;
  const auto with = [&](const auto& make) {
    wrong += compare<T, sharded<>, plain<>>(network, group, make);
  };
  with([](auto& m) { return ike::sgd{m, {.lr = 0.1}}; });
  with([](auto& m) { return ike::sgd{m, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}}; });
  with([](auto& m) { return ike::sgd{m, {.lr = 0.1, .momentum = 0.9, .nesterov = true}}; });
  with([](auto& m) { return ike::adam{m, {.lr = 0.01, .weight_decay = 0.01}}; });
  with([](auto& m) { return ike::adamw{m, {.lr = 0.01, .amsgrad = true}}; });
  return wrong;
}

/// Whatever the buckets, and however few elements for however many ranks.
template <class T, class Group>
int buckets(Group& group) {
  const auto make = [](auto& m) { return ike::adam{m, {.lr = 0.01}}; };
  using each = ike::bucket_cap<1>;
  return compare<T, sharded<>, plain<>>(tiny, group, make) +
         compare<T, sharded<each>, plain<each>>(larger, group, make);
}

/// Gradients sent in bfloat16.
template <class T, class Group>
int compressed(Group& group) {
  const auto make = [](auto& m) { return ike::sgd{m, {.lr = 0.1, .momentum = 0.9}}; };
  using bf16 = ike::comm_hook<ike::bf16_compress>;
  return compare<T, sharded<bf16>, plain<bf16>>(larger, group, make);
}

/// loss_backward several times: without synchronisation, and on top of averages.
template <class T, class Group>
int accumulation(Group& group) {
  auto shared = ike::replicate<sharded<>>(fresh<T>(network), group);
  auto whole = ike::replicate<plain<>>(fresh<T>(network), group);
  ike::adam mine{shared, {.lr = 0.01}};
  ike::adam reference{whole, {.lr = 0.01}};
  const auto run = [&](auto& model, int s) {
    model.loss_backward(input<T>(group.rank(), s), target<T>(model, group.rank(), s),
                        ike::mse_loss{});
  };
  int wrong = 0;
  const auto step = [&](auto& model, auto& optimizer, int s) {
    model.zero_grad();
    run(model, 5 * s);
    run(model, 5 * s + 1);  // Adds to averages.
    {
      const auto guard = model.no_sync();
      run(model, 5 * s + 2);
      run(model, 5 * s + 3);
    }
    run(model, 5 * s + 4);
    optimizer.step();
  };
  for (int s = 0; s < 4; ++s) {
    step(shared, mine, s);
    step(whole, reference, s);
    wrong += !same_parameters(shared, whole);
    shared.gather_gradients();
    wrong += !same_bits<T>(shared.gradients(), whole.gradients());
  }
  // A step on local gradients is refused before anything has changed.
  shared.zero_grad();
  {
    const auto guard = shared.no_sync();
    run(shared, 0);
  }
  bool refused = false;
  try {
    mine.step();
  } catch (const ike::state_error&) {
    refused = true;
  }
  return wrong + !refused + !same_parameters(shared, whole);
}

/// All ranks together keep what an unsharded optimizer keeps, and no rank more than its part, up to
/// one storage line per bucket.
template <class T, class Group>
int memory(Group& group) {
  auto shared = ike::replicate<sharded<ike::bucket_cap<1000>>>(fresh<T>(larger), group);
  auto whole = fresh<T>(larger);
  ike::adam mine{shared, {.amsgrad = true}};
  ike::adam reference{whole, {.amsgrad = true}};
  int wrong = 0;
  for (std::size_t i = 1; i < 4; ++i) {
    const auto own = static_cast<std::int64_t>(mine.state()[i].bytes.size());
    const auto full = static_cast<std::int64_t>(reference.state()[i].bytes.size());
    std::int64_t all = own;
    group.all_reduce(std::span{&all, 1}, ike::reduce_op::sum);
    wrong += all != full;
    wrong +=
        own > full / group.size() + 64 * static_cast<std::int64_t>(shared.bucket_plan().size());
  }
  return wrong;
}

/// The norm over all ranks' parts, and the same clipped step.
template <class T, class Group>
int clipping(Group& group) {
  constexpr double tolerance = sizeof(T) == 4 ? 1e-6 : 1e-14;
  auto shared = ike::replicate<sharded<>>(fresh<T>(larger), group);
  auto whole = ike::replicate<plain<>>(fresh<T>(larger), group);
  ike::sgd mine{shared, {.lr = 0.1}};
  ike::sgd reference{whole, {.lr = 0.1}};
  int wrong = 0;
  // By the optimizer itself, and by clip_grad_norm beforehand.
  for (const double type : {0.0, 2.0, 1.0, 3.0, static_cast<double>(INFINITY)}) {
    const auto step = [&](auto& model, auto& optimizer) {
      model.zero_grad();
      model.loss_backward(input<T>(group.rank(), 1), target<T>(model, group.rank(), 1),
                          ike::mse_loss{});
      optimizer.options().max_norm = type == 0 ? 0.01 : static_cast<double>(INFINITY);
      const double norm = type == 0 ? 0 : ike::clip_grad_norm(model, 0.01, {.norm_type = type});
      optimizer.step();
      return type == 0 ? optimizer.gradient_norm() : norm;
    };
    const double a = step(shared, mine), b = step(whole, reference);
    wrong += !(b > 0.01) + !(std::abs(a - b) <= tolerance * b);
    for (std::size_t i = 0; i < whole.parameters().size(); ++i)
      wrong +=
          !(std::abs(shared.parameters()[i] - whole.parameters()[i]) <= static_cast<T>(tolerance));
  }
  shared.gradients()[0] = static_cast<T>(NAN);  // The first rank's.
  for (const double type : {2.0, static_cast<double>(INFINITY)}) {
    bool refused = false;
    try {
      ike::clip_grad_norm(shared, 1, {.norm_type = type, .error_if_nonfinite = true});
    } catch (const ike::error&) {
      refused = true;
    }
    wrong += !refused;
  }
  return wrong;
}

inline int differences(const ike::state_dict& a, const ike::state_dict& b) {
  int wrong = a.size() != b.size();
  for (const auto& e : b) {
    const auto* other = a.find(e.name);
    wrong += other == nullptr || !(other->extents == e.extents) ||
             !std::ranges::equal(other->bytes, e.bytes);
  }
  return wrong;
}

/// The state equals the unsharded one, by parameter; loading it resumes as if nothing had happened.
template <class T, class Group>
int state(Group& group) {
  auto whole = ike::replicate<plain<>>(fresh<T>(network), group);
  ike::adam reference{whole, {.lr = 0.01, .amsgrad = true}};
  auto shared = ike::replicate<sharded<>>(fresh<T>(network), group);
  ike::adam mine{shared, {.lr = 0.01, .amsgrad = true}};
  train(whole, reference, group.rank(), 0, 3);
  train(shared, mine, group.rank(), 0, 3);
  const ike::state_dict saved = ike::get_optimizer_state_dict(shared, mine);
  int wrong = differences(saved, ike::get_optimizer_state_dict(whole, reference));
  wrong += !(saved.at("state.0.weight.exp_avg").extents == shape{7, 5});
  wrong += saved.size() != 4 * 4;

  // Into a replica that shards differently, and into one that does not shard.
  auto other = ike::replicate<sharded<ike::bucket_cap<1>>>(fresh<T>(network), group);
  auto alone = ike::replicate<plain<>>(fresh<T>(network), group);
  ike::adam others{other, {.lr = 0.01, .amsgrad = true}};
  ike::adam alones{alone, {.lr = 0.01, .amsgrad = true}};
  std::ranges::copy(whole.parameters(), other.parameters().begin());
  std::ranges::copy(whole.parameters(), alone.parameters().begin());
  ike::set_optimizer_state_dict(other, others, saved);
  ike::set_optimizer_state_dict(alone, alones, saved);
  wrong += differences(ike::get_optimizer_state_dict(other, others), saved);
  train(whole, reference, group.rank(), 3, 6);
  train(other, others, group.rank(), 3, 6);
  train(alone, alones, group.rank(), 3, 6);
  return wrong + !same_parameters(other, whole) + !same_parameters(alone, whole);
}

/// All of them.
template <class T, class Group>
int all(Group& group) {
  return optimizers<T>(group) + buckets<T>(group) + compressed<T>(group) + accumulation<T>(group) +
         memory<T>(group) + clipping<T>(group) + state<T>(group);
}

}  // namespace shard_optimizer_checks
