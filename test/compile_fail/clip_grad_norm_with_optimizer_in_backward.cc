// page: 25 Clipping with optimizer_in_backward
// expect: clip_grad_norm and clip_grad_value need all gradients before any step, and with optimizer_in_backward there is no such moment
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/clip_grad.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});

void on_each_rank(ike::thread_group& group) {
#ifdef MENDED
  using policy = ike::replicate_policy<>;
#else
  using policy = ike::replicate_policy<ike::optimizer_in_backward<true> >;
#endif
  auto model =
      ike::replicate<policy>(ike::initialize<float, ike::shape{4, 20}>(net, ike::seed{1}), group);
  ike::clip_grad_norm(model, 1.0);
}
