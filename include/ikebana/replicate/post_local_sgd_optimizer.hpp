#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "ikebana/replicate/model_averager.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

/// An optimizer whose step is followed by a call of a `model_averager`, like PyTorch's
/// PostLocalSGDOptimizer; to be passed to train_step if the model's comm_hook is `post_local_sgd`.
///
///     ike::post_local_sgd_optimizer optimizer{
///         ike::sgd{net, {.lr = 0.1}}, net, group, {.period = 4, .warmup_steps = 100}};
///     net.train_step(x, y, loss, optimizer);
///
/// The parameters are averaged; the inner optimizer's state is not. `step` throws and communicates
/// as the two do.
template <class T, class Optimizer, process_group Group>
class post_local_sgd_optimizer {
 public:
  template <class Model>
  post_local_sgd_optimizer(Optimizer inner, Model& model, Group& group,
                           const model_averager_options& options)
      : inner_{std::move(inner)}, averager_{group, options}, parameters_{model.parameters()} {
    static_assert(
        !requires { model.shards(); },
        "ikebana: post_local_sgd_optimizer averages parameters that ranks have updated on their "
        "own, and with shard_optimizer no rank does");
  }

  void step() {
    inner_.step();
    averager_.average(*this);
  }

  template <class Model>
  requires requires(const Optimizer& o, const Model& m) { o.updates(m); }
  bool updates(const Model& model) const { return inner_.updates(model); }

  auto& options() { return inner_.options(); }
  auto groups() requires requires(Optimizer& o) { o.groups(); }
  { return inner_.groups(); }
  void check_options() const requires requires(const Optimizer& o) { o.check_options(); }
  { inner_.check_options(); }
  /// The inner optimizer's state. The averager's step is separate: `averager().step()`.
  auto state() { return inner_.state(); }
  Optimizer& inner() { return inner_; }
  model_averager<Group>& averager() { return averager_; }
  std::span<T> parameters() const { return parameters_; }

 private:
  Optimizer inner_;
  model_averager<Group> averager_;
  std::span<T> parameters_;
};

template <class Optimizer, class Model, process_group Group>
post_local_sgd_optimizer(Optimizer, Model&, Group&, const model_averager_options&)
    -> post_local_sgd_optimizer<typename Model::value_type, Optimizer, Group>;

}  // namespace ikebana
