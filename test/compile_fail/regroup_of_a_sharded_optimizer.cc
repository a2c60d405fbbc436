// expect: under shard_optimizer a rank that is lost takes its part of the optimizer's state along: continue from a checkpoint
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;

#ifdef MENDED
using policy = ike::replicate_policy<>;
#else
using policy = ike::replicate_policy<ike::shard_optimizer<true> >;
#endif

void on_each_rank(ike::thread_group& group, ike::thread_group& next) {
  auto model = ike::replicate<policy>(
      ike::initialize<float, ike::shape{32, 20}>(ike::lazy_linear<10>{}, ike::seed{1}), group);
  model.set_process_group(next);
}
