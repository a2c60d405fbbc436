// The model would be destroyed before the first step.
// page: 23 An optimizer for a temporary
// expect: adam needs a model that outlives it
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
