// expect: with optimizer_in_backward gradients are used up while backward runs, so train_step is the only way to make them: no loss_backward or backward without an optimizer, no no_sync, no join
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});

void on_each_rank(ike::thread_group& group) {
#ifdef MENDED
  using policy = ike::replicate_policy<ike::shard_optimizer<true>>;
#else
  using policy = ike::replicate_policy<ike::optimizer_in_backward<true>>;
#endif
  auto model =
      ike::replicate<policy>(ike::initialize<float, ike::shape{4, 20}>(net, ike::seed{1}), group);
  const auto guard = model.no_sync();
}
