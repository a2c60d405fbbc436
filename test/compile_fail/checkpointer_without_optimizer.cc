// expect: checkpointer takes a directory, a model, its optimizer, and schedulers, data loaders, averaged models and gradient scalers, which outlive it
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/sgd.hpp>
#include <ikebana/train/checkpointer.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc"_m = ike::linear<3, 2>{});

void run() {
  auto model = ike::initialize<float, ike::shape{4, 3}>(net, ike::seed{1});
  ike::sgd optimizer{model, {.lr = 0.1}};
#ifdef MENDED
  ike::checkpointer checkpoints{"run", model, optimizer};
#else
  ike::checkpointer checkpoints{"run", model};
#endif
  checkpoints.save();
}
