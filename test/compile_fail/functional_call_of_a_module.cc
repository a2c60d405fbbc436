// expect: functional_call takes an initialized model, a state_dict and the inputs
#include <ikebana/ikebana.hpp>
#include <ikebana/model/functional_call.hpp>

namespace ike = ikebana;
using ike::dynamic, ike::shape;

void use() {
  constexpr auto net = ike::sequential(ike::linear<4, 3>{}, ike::tanh{}, ike::linear<3, 2>{});
  auto model = ike::initialize<float, shape{dynamic, 4}>(net, ike::seed{1});
  const ike::tensor<float, shape{5, 4}> x;
#ifdef MENDED
  (void)ike::functional_call(model, ike::get_state_dict(model), x);
#else
  (void)ike::functional_call(net, ike::get_state_dict(model), x);
#endif
}
