// expect: remove_parametrizations takes an initialized model: remove_parametrizations\(initialize<float, shape\{dynamic, 4\}>\(module, seed\{1\}\)\)
#include <ikebana/deploy.hpp>
#include <ikebana/ikebana.hpp>
#include <ikebana/nn/weight_norm.hpp>

namespace ike = ikebana;
using ike::dynamic, ike::shape;

void use() {
  constexpr auto net = ike::sequential(ike::weight_norm(ike::linear<4, 3>{}), ike::tanh{});
  auto model = ike::initialize<float, shape{dynamic, 4}>(net, ike::seed{1});
#ifdef MENDED
  (void)ike::remove_parametrizations(model);
#else
  (void)ike::remove_parametrizations(net), (void)model;
#endif
}
