// expect: quantize takes int8, an initialized model of float and batches of its inputs
#include <array>
#include <ikebana/deploy/quantize.hpp>
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using ike::dynamic, ike::shape;

void use() {
  constexpr auto net = ike::sequential(ike::linear<4, 3>{}, ike::tanh{}, ike::linear<3, 2>{});
  auto model = ike::initialize<double, shape{dynamic, 4}>(net, ike::seed{1});
  const ike::tensor<double, shape{5, 4}> x;
#ifdef MENDED
  (void)model, (void)x;
#else
  (void)ike::quantize<ike::int8>(model, std::array{x});
#endif
}
