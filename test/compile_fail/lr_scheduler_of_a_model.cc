// expect: lr_scheduler takes an optimizer and a schedule
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/adam.hpp>
#include <ikebana/optim/lr_scheduler.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<10>{});

void train() {
  auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
#ifdef MENDED
  ike::adam optimizer{model};
  ike::lr_scheduler schedule{optimizer, ike::step_lr{.step_size = 30}};
#else
  ike::lr_scheduler schedule{model, ike::step_lr{.step_size = 30}};
#endif
}
