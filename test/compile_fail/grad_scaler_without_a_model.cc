// expect: step of grad_scaler takes the model and its optimizer: scaler.step\(model, optimizer\)
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/grad_scaler.hpp>
#include <ikebana/optim/sgd.hpp>

namespace ike = ikebana;

auto model = ike::initialize<float, ike::shape{32, 20}>(ike::linear<20, 10>{}, ike::seed{1});
ike::sgd optimizer{model, {.lr = 0.1}};
ike::grad_scaler scaler;

#ifdef MENDED
const auto made = scaler.step(model, optimizer);
#else
const auto made = scaler.step(optimizer);
#endif
