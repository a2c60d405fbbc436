// The model would be gone before the first step.
// expect: (use of|call to) deleted (function|constructor)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/adam.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});

#ifdef MENDED
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
ike::adam optimizer{model};
#else
ike::adam optimizer{ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1})};
#endif
