// expect: freeze takes an initialized model: freeze\(initialize<float, shape\{dynamic, 4\}>\(module, seed\{1\}\)\)
#include <ikebana/deploy.hpp>
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using ike::dynamic, ike::shape;

void use() {
  constexpr auto net = ike::sequential(ike::linear<4, 3>{}, ike::tanh{}, ike::linear<3, 2>{});
  auto model = ike::initialize<float, shape{dynamic, 4}>(net, ike::seed{1});
  const ike::tensor<float, shape{5, 4}> x;
#ifdef MENDED
  (void)ike::freeze(model), (void)x;
#else
  (void)ike::freeze(net), (void)model, (void)x;
#endif
}
