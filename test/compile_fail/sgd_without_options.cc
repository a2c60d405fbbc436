// The learning rate has no default.
// page: 24 No learning rate
// expect: sgd needs a learning rate
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/sgd.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

#ifdef MENDED
ike::sgd optimizer{model, {.lr = 0.1}};
#else
ike::sgd optimizer{model};
#endif
