// expect: an inference_model is called with a lane, which outlives its output, then the inputs
#include <ikebana/deploy.hpp>
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using ike::dynamic, ike::shape;

void use() {
  constexpr auto net = ike::sequential(ike::linear<4, 3>{}, ike::tanh{}, ike::linear<3, 2>{});
  auto model = ike::initialize<float, shape{dynamic, 4}>(net, ike::seed{1});
  const ike::tensor<float, shape{5, 4}> x;
#ifdef MENDED
  const auto frozen = ike::freeze(model);
  auto lane = frozen.lane();
  (void)frozen(lane, x);
#else
  (void)ike::freeze(model)(x);
#endif
}
