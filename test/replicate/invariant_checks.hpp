#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/train/training_state.hpp"

// Training with invariant<S>, on any kind of group.
namespace invariant_checks {

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::dynamic;
using ike::shape;

constexpr auto net = ike::sequential("conv"_m = ike::lazy_conv2d<5, ike::kernel<3>>{},
                                     "norm"_m = ike::lazy_batch_norm2d<>{}, "relu"_m = ike::relu{},
                                     "drop"_m = ike::dropout{0.25}, "flatten"_m = ike::flatten{},
                                     "fc"_m = ike::lazy_linear<5>{});

constexpr shape images{dynamic, 2, 5, 7};
constexpr shape rows{dynamic};
template <class T>
using image_rows = ike::tensor_view<const T, images>;
using label_rows = ike::tensor_view<const std::int64_t, rows>;

/// The batch of a step, the same on every rank.
template <class T>
struct batch {
  ike::tensor<T, images> x;
  ike::tensor<std::int64_t, rows> labels;

  batch(int step, dim_t n)
      : x{ike::uniform<T, images>(ike::seed{100 + static_cast<std::uint64_t>(step)}, n)},
        labels(shape{n}) {
    for (dim_t i = 0; i < n; ++i) labels[i] = (3 * i + i * i + step) % 5;
  }

  image_rows<T> inputs(ike::index_range r) const {
    const shape whole = x.extents();
    return {x.data() + r.begin * whole.numel(1, 4), whole.with(0, r.size())};
  }
  label_rows targets(ike::index_range r) const {
    return {labels.data() + r.begin, shape{r.size()}};
  }
};

template <class T>
auto initial(std::uint64_t seed = 1) {
  return ike::initialize<T, images>(net, ike::seed{seed});
}

struct make_sgd {
  auto operator()(auto& model) const {
    return ike::sgd{model, {.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3}};
  }
};
struct make_adam {
  auto operator()(auto& model) const { return ike::adam{model, {.lr = 2e-3, .amsgrad = true}}; }
};

/// The result of training, including the last loss.
template <class Model, class T>
std::uint64_t hash_of(const Model& model, T loss) {
  std::uint64_t h = ike::hash_path("");
  const auto add = [&h](std::span<const std::byte> bytes) {
    for (std::byte b : bytes) h = (h ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3u;
  };
  add(std::as_bytes(model.parameters()));
  add(model.buffers());
  add(std::as_bytes(std::span{&loss, 1}));
  return h;
}

/// Trains for the steps [first, last), with batches of `n` rows, and of `short_n` every third step.
template <class T, class Model, class Optimizer>
T train(Model& model, Optimizer& optimizer, int first, int last, dim_t n, dim_t short_n) {
  T loss{};
  for (int step = first; step < last; ++step) {
    const batch<T> b(step, step % 3 == 2 ? short_n : n);
    const ike::index_range part = model.part(b.labels.size());
    loss = model.train_step(b.inputs(part), b.targets(part), ike::cross_entropy{}, optimizer);
  }
  return loss;
}

template <dim_t S>
using policy = ike::replicate_policy<ike::invariant<S>>;

/// The hash of the weights, running statistics and loss of this rank after some steps.
template <class T, dim_t S, class MakeOptimizer, ike::process_group Group>
std::uint64_t hash_after(Group& group, int steps, dim_t n, dim_t short_n) {
  auto model =
      ike::replicate<policy<S>>(initial<T>(1 + static_cast<std::uint64_t>(group.rank())), group);
  auto optimizer = MakeOptimizer{}(model);
  const T loss = train<T>(model, optimizer, 0, steps, n, short_n);
  return hash_of(model, loss);
}

/// The state of training after some steps.
template <class T, dim_t S, class MakeOptimizer, ike::process_group Group>
ike::state_dict state_after(Group& group, int steps) {
  auto model = ike::replicate<policy<S>>(initial<T>(), group);
  auto optimizer = MakeOptimizer{}(model);
  train<T>(model, optimizer, 0, steps, 16, 11);
  return ike::get_training_state(model, optimizer).clone();
}

/// The hash after `steps` steps, the first of which led to a saved state.
template <class T, dim_t S, class MakeOptimizer, ike::process_group Group>
std::uint64_t hash_resumed(Group& group, const ike::state_dict& state, int done, int steps) {
  auto model = ike::replicate<policy<S>>(initial<T>(99), group);
  auto optimizer = MakeOptimizer{}(model);
  ike::load_training_state(model, optimizer, state);
  const T loss = train<T>(model, optimizer, done, steps, 16, 11);
  return hash_of(model, loss);
}

/// The number of cases that differ between this group and a world of one rank: 0. All ranks must
/// call it; `report(name, hash)` gets the results.
template <ike::process_group Group, class Report>
int differences_from_one_rank(Group& group, Report&& report) {
  int different = 0;
  const auto compare = [&](const char* name, std::uint64_t alone, std::uint64_t together) {
    report(name, together);
    different += alone != together;
  };
  ike::single one;
  const auto of_both = [&]<class T, dim_t S, class Make>(const char* name, int steps, dim_t n,
                                                         dim_t short_n) {
    compare(name, hash_after<T, S, Make>(one, steps, n, short_n),
            hash_after<T, S, Make>(group, steps, n, short_n));
  };
  of_both.template operator()<float, 8, make_sgd>("float, sgd", 50, 16, 16);
  of_both.template operator()<float, 8, make_adam>("float, adam", 50, 16, 16);
  of_both.template operator()<double, 8, make_adam>("double, adam", 20, 16, 16);
  of_both.template operator()<float, 8, make_sgd>("float, sgd, uneven batches", 20, 19, 5);
  if (group.size() <= 5)
    of_both.template operator()<float, 5, make_sgd>("float, sgd, 5 shards", 20, 13, 7);
  compare(
      "float, adam, resumed",
      hash_resumed<float, 8, make_adam>(one, state_after<float, 8, make_adam>(one, 0), 0, 12),
      hash_resumed<float, 8, make_adam>(group, state_after<float, 8, make_adam>(one, 5), 5, 12));
  return different;
}

}  // namespace invariant_checks
