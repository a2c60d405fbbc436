// expect: jvp takes a direction of the shape of its input, \[5, 4\], got \[5, 3\]
#include <ikebana/ikebana.hpp>
#include <ikebana/model/jvp.hpp>

namespace ike = ikebana;
using ike::dynamic, ike::shape;

void use() {
  constexpr auto net = ike::sequential(ike::linear<4, 3>{}, ike::tanh{}, ike::linear<3, 2>{});
  auto model = ike::initialize<float, shape{dynamic, 4}>(net, ike::seed{1});
  const ike::tensor<float, shape{5, 4}> x;
#ifdef MENDED
  (void)ike::jvp(model, x, ike::tensor<float, shape{5, 4}>{});
#else
  (void)ike::jvp(model, x, ike::tensor<float, shape{5, 3}>{});
#endif
}
