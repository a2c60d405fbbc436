// expect: \*\.wieght: is not the path of a parameter; there are fc.weight, fc.bias
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/init_parameters.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/init.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<10>{});

void draw() {
  auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
  const auto zero = [](auto p, ike::seed) { ike::init::zeros(p); };
#ifdef MENDED
  ike::init_parameters<"*.weight">(model, ike::seed{2}, zero);
#else
  ike::init_parameters<"*.wieght">(model, ike::seed{2}, zero);
#endif
}
