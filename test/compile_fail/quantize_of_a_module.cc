// expect: quantize takes bfloat16 or float16 and an initialized model
#include <ikebana/deploy/quantize.hpp>
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using ike::shape;

void use() {
  constexpr auto net = ike::sequential(ike::linear<4, 3>{}, ike::tanh{});
#ifdef MENDED
  (void)ike::quantize<ike::bfloat16>(ike::initialize<float, shape{1, 4}>(net, ike::seed{1}));
#else
  (void)ike::quantize<ike::bfloat16>(net);
#endif
}
