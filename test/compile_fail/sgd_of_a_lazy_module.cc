// expect: sgd needs an initialized model
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/sgd.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

#ifdef MENDED
ike::sgd optimizer{model, {.lr = 1e-3}};
#else
ike::sgd optimizer{net, {.lr = 1e-3}};
#endif
