// A loss takes the outputs of the network and then the targets.
// expect: the loss takes the outputs of the network and then the targets, 3 in all, got 2
#include <ikebana/compose/loss.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/loss.hpp>

namespace ike = ikebana;

auto model = ike::initialize<float, ike::shape{32, 10}>(ike::linear<10, 1>{}, ike::seed{1});
ike::tensor<float, ike::shape{32, 10}> x;
ike::tensor<float, ike::shape{32, 1}> t;
constexpr auto product = [](auto y, auto target, auto w) { return y * target * w; };

#ifdef MENDED
void step() { model.loss_backward(x, t, ike::mse_loss{}); }
#else
void step() { model.loss_backward(x, t, product); }
#endif
