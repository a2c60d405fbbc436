// expect: find_lr takes a model, a loader, a loss and an optimizer
#include <ikebana/ikebana.hpp>
#include <ikebana/train/find_lr.hpp>

namespace ike = ikebana;
using ike::dynamic, ike::shape;

void use() {
  constexpr auto net = ike::sequential(ike::linear<4, 3>{}, ike::tanh{}, ike::linear<3, 2>{});
  auto model = ike::initialize<float, shape{dynamic, 4}>(net, ike::seed{1});
  const ike::tensor<float, shape{5, 4}> x;
#ifdef MENDED
  (void)model, (void)x;
#else
  (void)ike::find_lr(model, x, ike::mse_loss{});
#endif
}
