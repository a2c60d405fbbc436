#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/join.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/replicate/unused.hpp"
#include "test/support/load_recorded.hpp"

/// Two replicas compared with two of PyTorch's DistributedDataParallel: 20 steps, recorded by
/// test/data/ddp_trajectories.py. Both ranks of a group call each function.
namespace ddp_trajectories {

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::dynamic;
using ike::shape;

inline constexpr dim_t steps = 20;
inline constexpr shape rows{dynamic, 12};
inline constexpr shape images{dynamic, 2, 4, 4};
using small_buckets = ike::bucket_cap<256>;

inline constexpr auto mlp = ike::sequential(
    "fc1"_m = ike::lazy_linear<16>{}, "tanh"_m = ike::tanh{}, "fc2"_m = ike::lazy_linear<5>{});
inline constexpr auto convolutional =
    ike::sequential("conv"_m = ike::lazy_conv2d<4, ike::kernel<3>, ike::padding<1>>{},
                    "norm"_m = ike::lazy_batch_norm2d<>{}, "tanh"_m = ike::tanh{},
                    "flatten"_m = ike::flatten{}, "fc"_m = ike::lazy_linear<5>{});

inline constexpr auto branches = ike::sequential(
    "fc1"_m = ike::lazy_linear<16>{}, "tanh"_m = ike::tanh{},
    "branch"_m = ike::choose("left"_m = ike::lazy_linear<5>{}, "right"_m = ike::lazy_linear<5>{}));

inline constexpr auto momentum = [](auto& model) {
  return ike::sgd{model, {.lr = 0.1, .momentum = 0.9}};
};
inline constexpr auto plain = [](auto& model) { return ike::sgd{model, {.lr = 0.05}}; };
inline constexpr auto adam = [](auto& model) { return ike::adam{model, {.lr = 0.01}}; };

/// PyTorch's results of a case, and its inputs.
template <class T>
class recording {
 public:
  recording(std::string name, std::string network)
      : all_{load_recorded(std::is_same_v<T, float> ? "ddp_trajectories_f32"
                                                    : "ddp_trajectories_f64")},
        name_{std::move(name)},
        network_{std::move(network)} {}

  /// The initial weights of rank 0; the others get them from it.
  template <class Model, class Group>
  void load(Model& model, const Group& group) const {
    if (group.rank() != 0) return;
    const std::string prefix = network_ + "/initial.";
    ike::state_dict own;
    for (const auto& e : all_)
      if (e.name.starts_with(prefix))
        own.add_view(std::string_view{e.name}.substr(prefix.size()), e.type, e.extents,
                     e.bytes.data());
    ike::load_state_dict(model, own);
  }

  /// Rows [first, last) of a rank's batch of a step, and their labels.
  template <shape In>
  auto x(dim_t step, int rank, dim_t first, dim_t last) const {
    const auto& e = all_.at(In == images ? "image" : "x");
    const dim_t batch = e.extents[2], row = e.extents.numel() / (steps * 2 * batch);
    const T* data = reinterpret_cast<const T*>(e.bytes.data());
    return ike::tensor_view<const T, In>(data + ((step * 2 + rank) * batch + first) * row,
                                         In.with(0, last - first));
  }
  template <shape In>
  auto target(dim_t step, int rank, dim_t first, dim_t last) const {
    const auto& e = all_.at(In == images ? "image_target" : "target");
    const auto* data = reinterpret_cast<const std::int64_t*>(e.bytes.data());
    return ike::tensor_view<const std::int64_t, shape{dynamic}>(
        data + (step * 2 + rank) * e.extents[2] + first, shape{last - first});
  }

  dim_t steps_of(int rank) const {
    return all_.at(name_ + "/steps").template view<std::int64_t, shape{2}>()[rank];
  }
  dim_t chosen(dim_t step, int rank) const {
    return all_.at(name_ + "/chosen").template view<std::int64_t, shape{steps, 2}>()(step, rank);
  }

  void check_loss(T loss, dim_t step, int rank) const {
    const T wanted = all_.at(name_ + "/losses").template view<T, shape{steps, 2}>()(step, rank);
    check_close(&loss, &wanted, 1, "loss of step " + std::to_string(step));
  }

  /// Compares with the state after that many steps, if it was recorded: parameters on every rank,
  /// buffers on rank 0, from which the others have theirs.
  template <class Model>
  void check_state(const Model& model, dim_t done) const {
    const std::string prefix = name_ + "/step" + std::to_string(done) + ".";
    for (const auto& e : ike::get_state_dict(model)) {
      const auto* wanted = all_.find(prefix + e.name);
      if (wanted == nullptr) continue;
      if (e.type == ike::dtype_of<T>)
        check_close(reinterpret_cast<const T*>(e.bytes.data()),
                    reinterpret_cast<const T*>(wanted->bytes.data()), e.extents.numel(),
                    prefix + e.name);
      else
        CHECK_MESSAGE(std::ranges::equal(e.bytes, wanted->bytes), prefix << e.name);
    }
  }

 private:
  static void check_close(const T* a, const T* b, dim_t n, const std::string& what) {
    constexpr double tolerance = std::is_same_v<T, float> ? 1e-5 : 1e-11;
    double most = 0, apart = 0;
    for (dim_t i = 0; i < n; ++i) {
      most = std::max(most, std::fabs(static_cast<double>(b[i])));
      const double d = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
      if (!(d <= apart)) apart = d;
    }
    CHECK_MESSAGE(apart <= tolerance * most, what << ": " << apart << " of " << most);
  }

  ike::state_dict all_;
  std::string name_, network_;
};

/// A network that makes every step on its whole batch.
template <class T, shape In>
void train(const recording<T>& r, auto& group, const auto& net, auto make_optimizer) {
  auto made = ike::initialize<T, In>(net, ike::seed{1});
  r.load(made, group);
  auto model = ike::replicate<ike::replicate_policy<small_buckets>>(std::move(made), group);
  CHECK(model.bucket_plan().size() > 1);
  auto optimizer = make_optimizer(model);
  const dim_t batch = In == images ? 4 : 8;
  for (dim_t s = 0; s < steps; ++s) {
    const T loss = model.train_step(r.template x<In>(s, group.rank(), 0, batch),
                                    r.template target<In>(s, group.rank(), 0, batch),
                                    ike::cross_entropy{}, optimizer);
    r.check_loss(loss, s, group.rank());
    r.check_state(model, s + 1);
  }
}

template <class T>
void sgd_with_momentum(auto& group) {
  train<T, rows>(recording<T>{"momentum", "mlp"}, group, mlp, momentum);
}
template <class T>
void adam_steps(auto& group) {
  train<T, rows>(recording<T>{"adam", "mlp"}, group, mlp, adam);
}
template <class T>
void buffers_of_rank_0(auto& group) {
  train<T, images>(recording<T>{"buffers", "convolutional"}, group, convolutional, plain);
}

/// Microbatches of 3 and 5 rows, the first under no_sync.
template <class T>
void accumulation(auto& group) {
  const recording<T> r{"accumulation", "mlp"};
  auto made = ike::initialize<T, rows>(mlp, ike::seed{1});
  r.load(made, group);
  auto model = ike::replicate<ike::replicate_policy<small_buckets>>(std::move(made), group);
  auto optimizer = momentum(model);
  const int rank = group.rank();
  for (dim_t s = 0; s < steps; ++s) {
    const auto part = [&](dim_t first, dim_t last) {
      return model.loss_backward(r.template x<rows>(s, rank, first, last),
                                 r.template target<rows>(s, rank, first, last),
                                 ike::cross_entropy{});
    };
    model.zero_grad();
    T loss = 0;
    {
      const auto guard = model.no_sync();
      loss += part(0, 3);
    }
    loss += part(3, 8);
    optimizer.step();
    r.check_loss(loss, s, rank);
    r.check_state(model, s + 1);
  }
}

/// Ranks with 20 and 14 batches; rank 0 has more or fewer.
template <class T>
void uneven_inputs(auto& group, bool divide_by_initial_world_size) {
  const recording<T> r{divide_by_initial_world_size ? "join_initial_world" : "join_effective_world",
                       "mlp"};
  auto made = ike::initialize<T, rows>(mlp, ike::seed{1});
  r.load(made, group);
  auto model = ike::replicate<ike::replicate_policy<small_buckets>>(std::move(made), group);
  auto optimizer = momentum(model);
  const int rank = group.rank();
  model.join(
      [&] {
        for (dim_t s = 0; s < r.steps_of(rank); ++s) {
          const T loss = model.train_step(r.template x<rows>(s, rank, 0, 8),
                                          r.template target<rows>(s, rank, 0, 8),
                                          ike::cross_entropy{}, optimizer);
          r.check_loss(loss, s, rank);
          r.check_state(model, s + 1);
        }
      },
      {.divide_by_initial_world_size = divide_by_initial_world_size});
  r.check_state(model, steps);
}

/// Branches taken by both ranks, by one, or by none.
template <class T>
void unused_parameters(auto& group) {
  const recording<T> r{"unused", "branches"};
  auto made = ike::initialize<T, rows>(branches, ike::seed{1});
  r.load(made, group);
  using policy = ike::replicate_policy<small_buckets, ike::find_unused_parameters<true>>;
  auto model = ike::replicate<policy>(std::move(made), group);
  auto optimizer = momentum(model);
  const int rank = group.rank();
  for (dim_t s = 0; s < steps; ++s) {
    model.choose("branch"_s, static_cast<int>(r.chosen(s, rank)));
    const T loss =
        model.train_step(r.template x<rows>(s, rank, 0, 8), r.template target<rows>(s, rank, 0, 8),
                         ike::cross_entropy{}, optimizer);
    r.check_loss(loss, s, rank);
    r.check_state(model, s + 1);
  }
}

}  // namespace ddp_trajectories
