// expect: this optimizer needs whole parameters and their gradients on every rank, and with shard_optimizer each has a part
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/lamb.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;

void on_each_rank(ike::thread_group& group) {
#ifdef MENDED
  using policy = ike::replicate_policy<>;
#else
  using policy = ike::replicate_policy<ike::shard_optimizer<true> >;
#endif
  auto model = ike::replicate<policy>(
      ike::initialize<float, ike::shape{32, 20}>(ike::lazy_linear<10>{}, ike::seed{1}), group);
  ike::lamb optimizer{model};
  optimizer.step();
}
