// The result of a loss is one number.
// expect: a loss gives one number, got \[32, 10\]: take the average or the sum
#include <ikebana/compose/loss.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/loss.hpp>
#include <ikebana/optim/sgd.hpp>

namespace ike = ikebana;

auto model = ike::initialize<float, ike::shape{32, 10}>(ike::linear<10, 10>{}, ike::seed{1});
ike::sgd optimizer{model, {}};
ike::tensor<float, ike::shape{32, 10}> x, t;
constexpr auto product = [](auto y, auto target) { return y * target; };

#ifdef MENDED
void step() { model.train_step(x, t, ike::mse_loss{}, optimizer); }
#else
void step() { model.train_step(x, t, product, optimizer); }
#endif
