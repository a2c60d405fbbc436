// page: 17 A target of another type
// expect: mse_loss expects a target of the prediction type float, got double
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
ike::adam optimizer{model};

#ifdef MENDED
auto loss =
    model.train_step(x, ike::zeros<float, ike::shape{32, 10}>(), ike::mse_loss{}, optimizer);
#else
auto loss =
    model.train_step(x, ike::zeros<double, ike::shape{32, 10}>(), ike::mse_loss{}, optimizer);
#endif
