// expect: quantize takes int8, an initialized model of float and batches of its inputs: quantize<int8>\(model, batches\)
#include <array>
#include <ikebana/deploy/quantize.hpp>
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using ike::dynamic, ike::shape;

void use() {
  auto model = ike::initialize<float, shape{dynamic, 4}>(ike::linear<4, 3>{}, ike::seed{1});
  const ike::tensor<float, shape{5, 4}> x;
#ifdef MENDED
  (void)ike::quantize<ike::int8>(model, std::array{x});
#else
  (void)x;
  (void)ike::quantize<ike::int8>(model);
#endif
}
