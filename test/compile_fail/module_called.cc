// A module describes; what is called is a model of it.
// expect: ikebana: a module has no weights, so it cannot be called with a tensor: call a model of it
// line: 5
#include <ikebana/compose/sequential.hpp>
#include <ikebana/core/tensor.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;

constexpr auto net = ike::sequential(ike::linear<4, 2>{});

int main() {
  const auto x = ike::ones<float, ike::shape{3, 4}>();
#ifdef MENDED
  auto model = ike::initialize<float, ike::shape{3, 4}>(net, ike::seed{1});
  const auto y = model(x);
#else
  const auto y = net(x);
#endif
  static_cast<void>(y);
  return 0;
}
