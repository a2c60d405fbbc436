#pragma once

#include <cstddef>
#include <vector>

#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/model_averager.hpp"
#include "ikebana/replicate/post_local_sgd.hpp"
#include "ikebana/replicate/post_local_sgd_optimizer.hpp"
#include "optimizer_run.hpp"

// Post-local SGD with its optimizer on every kind of process group; like shard_optimizer_checks.
namespace post_local_sgd_checks {

using namespace optimizer_run;

/// (x[0] + x[1] + ...) / ranks, for all, as a group computes it.
template <class T, class Array>
void average(std::vector<T>& sum, int ranks, const Array& of_rank) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    T all = of_rank(0)[i];
    for (int r = 1; r < ranks; ++r) all += of_rank(r)[i];
    sum[i] = all * (T{1} / static_cast<T>(ranks));
  }
  for (int r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < sum.size(); ++i) of_rank(r)[i] = sum[i];
}

/// The parameters of this rank in every step equal those of all ranks' models computed in one place
/// by the rule: gradients averaged in the first `warmup` steps, afterwards parameters after every
/// `period`-th. Returns the number of steps in which they do not.
template <class T, class Group>
int trajectory(Group& group) {
  constexpr int warmup = 3, period = 2, steps = 10;
  const ike::sgd_options options{.lr = 0.1, .momentum = 0.9};
  auto model = ike::replicate<ike::replicate_policy<ike::comm_hook<ike::post_local_sgd<>>>>(
      fresh<T>(network), group, ike::post_local_sgd{warmup});
  ike::post_local_sgd_optimizer optimizer{
      ike::sgd{model, options}, model, group, {.period = period, .warmup_steps = warmup}};

  using single_model = decltype(fresh<T>(network));
  std::vector<single_model> models;
  std::vector<ike::sgd<T>> optimizers;
  for (int r = 0; r < group.size(); ++r) models.push_back(fresh<T>(network));
  for (single_model& m : models) optimizers.emplace_back(m, options);
  std::vector<T> sum(models[0].parameters().size());

  int wrong = 0;
  for (int s = 0; s < steps; ++s) {
    train(model, optimizer, group.rank(), s, s + 1);
    for (int r = 0; r < group.size(); ++r) {
      auto& m = models[static_cast<std::size_t>(r)];
      m.zero_grad();
      m.loss_backward(input<T>(r, s), target<T>(m, r, s), ike::mse_loss{});
    }
    const auto at = [&](int r) -> single_model& { return models[static_cast<std::size_t>(r)]; };
    if (s < warmup) average(sum, group.size(), [&](int r) { return at(r).gradients(); });
    for (auto& o : optimizers) o.step();
    if (s >= warmup && (s - warmup) % period == 0)
      average(sum, group.size(), [&](int r) { return at(r).parameters(); });
    wrong += !same_parameters(model, at(group.rank()));
  }
  return wrong + (optimizer.averager().step() != steps);
}

}  // namespace post_local_sgd_checks
