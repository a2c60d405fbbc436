// page: 21 An option of another name
// expect: adam takes a model and its options in braces
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/loss.hpp>
#include <ikebana/optim/adam.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
ike::tensor<float, ike::shape{32, 20}> x;

#ifdef MENDED
ike::adam optimizer{model, {.lr = 1e-3}};
#else
ike::adam optimizer{model, {.learning_rate = 1e-3}};
#endif
