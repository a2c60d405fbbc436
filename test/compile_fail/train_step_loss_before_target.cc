// expect: train_step needs a target before the loss: train_step\(x, target, cross_entropy\{\}, optimizer\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/loss.hpp>
#include <ikebana/optim/adam.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<10>{});

void train() {
  auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
  ike::adam optimizer{model};
  const ike::tensor<float, ike::shape{32, 20}> x;
  const ike::tensor<float, ike::shape{32, 10}> target;
#ifdef MENDED
  model.train_step(x, target, ike::mse_loss{}, optimizer);
#else
  model.train_step(x, ike::mse_loss{}, target, optimizer);
#endif
}
