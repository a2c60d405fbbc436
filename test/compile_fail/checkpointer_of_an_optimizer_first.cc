// expect: checkpointer takes a directory, a model, its optimizer, and schedulers, data loaders, averaged models and gradient scalers, which outlive it
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/sgd.hpp>
#include <ikebana/train/checkpointer.hpp>

namespace ike = ikebana;

auto model = ike::initialize<float, ike::shape{32, 20}>(ike::linear<20, 10>{}, ike::seed{1});
ike::sgd optimizer{model, {.lr = 0.1}};

#ifdef MENDED
ike::checkpointer checkpoints{"run", model, optimizer};
#else
ike::checkpointer checkpoints{"run", optimizer, model};
#endif
