// expect: step of reduce_lr_on_plateau takes the metric of the epoch: schedule.step\(validation_loss\)
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/reduce_lr_on_plateau.hpp>
#include <ikebana/optim/sgd.hpp>

namespace ike = ikebana;

auto model = ike::initialize<float, ike::shape{32, 20}>(ike::linear<20, 10>{}, ike::seed{1});
ike::sgd optimizer{model, {.lr = 0.1}};
ike::reduce_lr_on_plateau schedule{optimizer};

#ifdef MENDED
void run() { schedule.step(0.5); }
#else
void run() { schedule.step(); }
#endif
