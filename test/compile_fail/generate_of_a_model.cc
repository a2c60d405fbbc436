// expect: generate takes an inference_model, its lane and a prompt
#include <ikebana/deploy.hpp>
#include <ikebana/deploy/generate.hpp>
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using ike::dynamic, ike::shape;

void use() {
  constexpr auto net = ike::sequential(ike::linear<4, 3>{}, ike::tanh{}, ike::linear<3, 2>{});
  auto model = ike::initialize<float, shape{dynamic, 4}>(net, ike::seed{1});
  const ike::tensor<float, shape{5, 4}> x;
#ifdef MENDED
  (void)model, (void)x;
#else
  (void)ike::generate(model, x);
#endif
}
