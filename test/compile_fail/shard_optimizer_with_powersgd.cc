// expect: shard_optimizer reduces gradients only where they are needed, which this comm_hook cannot: it goes with the default hook and with bf16_compress
// line: 8
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/powersgd.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});

void on_each_rank(ike::thread_group& group) {
#ifdef MENDED
  using hook = ike::bf16_compress;
#else
  using hook = ike::powersgd;
#endif
  using policy = ike::replicate_policy<ike::shard_optimizer<true>, ike::comm_hook<hook>>;
  auto model =
      ike::replicate<policy>(ike::initialize<float, ike::shape{4, 20}>(net, ike::seed{1}), group);
  model.zero_grad();
}
