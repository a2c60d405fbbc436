// expect: a join under shard_optimizer needs the optimizer, of which each rank has a part: model.join\(optimizer, body\)
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/loss.hpp>
#include <ikebana/optim/sgd.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;

void on_each_rank(ike::thread_group& group) {
  using policy = ike::replicate_policy<ike::shard_optimizer<true>>;
  auto model = ike::replicate<policy>(
      ike::initialize<float, ike::shape{32, 20}>(ike::lazy_linear<10>{}, ike::seed{1}), group);
  ike::sgd optimizer{model, {.lr = 0.1}};
  const auto steps = [] {};
#ifdef MENDED
  model.join(optimizer, steps);
#else
  model.join(steps);
#endif
}
