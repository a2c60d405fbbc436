// page: 18 An unknown path
// expect: fc2.weight: is not the path of a parameter; there are fc1.weight, fc1.bias
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

#ifdef MENDED
auto w = model["fc1.weight"_s];
#else
auto w = model["fc2.weight"_s];
#endif
