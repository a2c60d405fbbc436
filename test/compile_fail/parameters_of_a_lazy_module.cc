// expect: named_parameters needs an initialized model: initialize<T, shape>\(module, seed\) gives one
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/model/named_parameters.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

void ask() {
#ifdef MENDED
  ike::named_parameters(model);
#else
  ike::named_parameters(net);
#endif
}
