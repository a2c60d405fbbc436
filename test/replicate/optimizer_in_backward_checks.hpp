#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/optimizer_in_backward.hpp"
#include "ikebana/replicate/path_options.hpp"
#include "ikebana/replicate/powersgd.hpp"
#include "ikebana/replicate/shard_optimizer.hpp"
#include "optimizer_run.hpp"

// Stepping during backward on every kind of process group; like shard_optimizer_checks.
namespace optimizer_in_backward_checks {

using namespace optimizer_run;

template <class... More>
using early = ike::replicate_policy<ike::optimizer_in_backward<true>, More...>;

/// The same bits as a step at the end.
template <class T, class Group>
int optimizers(Group& group) {
  using each = ike::bucket_cap<1>;
  const auto sgd = [](auto& m) {
    return ike::sgd{m, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}};
  };
  const auto adamw = [](auto& m) { return ike::adamw{m, {.lr = 0.01, .amsgrad = true}}; };
  return compare<T, early<each>, plain<each>>(network, group, sgd) +
         compare<T, early<each>, plain<each>>(network, group, adamw);
}

/// With a hook of two stages, and with parameters that are in no bucket.
template <class T, class Group>
int hooks(Group& group) {
  using each = ike::bucket_cap<1>;
  using low_rank = ike::comm_hook<ike::powersgd>;
  using apart = ike::ignored<"0.bias">;
  using later = ike::delay_all_reduce<"2.weight">;
  const auto make = [](auto& m) { return ike::adam{m, {.lr = 0.01}}; };
  return compare<T, early<each, low_rank>, plain<each, low_rank>>(network, group, make) +
         compare<T, early<each, apart, later>, plain<each, apart, later>>(network, group, make);
}

/// With a sharded optimizer: stepped and gathered bucket by bucket.
template <class T, class Group>
int shared(Group& group) {
  using each = ike::bucket_cap<1>;
  using zero = ike::shard_optimizer<true>;
  const auto make = [](auto& m) { return ike::adam{m, {.lr = 0.01}}; };
  return compare<T, early<zero, each>, plain<each>>(larger, group, make) +
         compare<T, early<zero>, plain<>>(network, group, make);
}

/// Records its calls.
struct witness {
  std::vector<std::pair<ike::dim_t, ike::dim_t>> parts{};
  int begun = 0;
  void step() {}
  void begin_step() { ++begun; }
  void step_elements(ike::dim_t begin, ike::dim_t end) { parts.emplace_back(begin, end); }
};

/// Bucket by bucket, every element once per step.
template <class T, class Group>
int parts(Group& group) {
  auto model = ike::replicate<early<ike::bucket_cap<1>>>(fresh<T>(network), group);
  witness w;
  train(model, w, group.rank(), 0, 2);
  const auto& plan = model.bucket_plan();
  int wrong = (w.begun != 2) + (w.parts.size() != 2 * plan.size()) + (plan.size() != 4);
  for (std::size_t i = 0; i < w.parts.size() && wrong == 0; ++i) {
    const auto& b = plan[i % plan.size()];
    constexpr auto element = static_cast<ike::dim_t>(sizeof(T));
    wrong += w.parts[i] != std::pair{b.begin / element, b.end / element};
  }
  return wrong;
}

/// An optimizer that rejects its options does so before any parameter has changed.
template <class T, class Group>
int refusal(Group& group) {
  auto model = ike::replicate<early<>>(fresh<T>(network), group);
  ike::sgd optimizer{model, {.lr = 0.1}};
  optimizer.options().lr = -1;
  bool refused = false;
  try {
    train(model, optimizer, group.rank(), 0, 1);
  } catch (const ike::error&) {
    refused = true;
  }
  optimizer.options().lr = 0.1;
  int wrong = !refused + !same_parameters(model, fresh<T>(network));
  auto other = ike::replicate<plain<>>(fresh<T>(network), group);
  ike::sgd reference{other, {.lr = 0.1}};
  train(model, optimizer, group.rank(), 0, 2);
  train(other, reference, group.rank(), 0, 2);
  return wrong + !same_parameters(model, other);
}

template <class T, class Group>
int all(Group& group) {
  return optimizers<T>(group) + hooks<T>(group) + shared<T>(group) + parts<T>(group) +
         refusal<T>(group);
}

}  // namespace optimizer_in_backward_checks
