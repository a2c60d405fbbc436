// expect: fit takes a model, a loader, a loss and an optimizer
#include <ikebana/compose/sequential.hpp>
#include <ikebana/io/data_loader.hpp>
#include <ikebana/io/dataset.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/loss.hpp>
#include <ikebana/optim/sgd.hpp>
#include <ikebana/train/fit.hpp>

namespace ike = ikebana;

auto model = ike::initialize<float, ike::shape{ike::dynamic, 4}>(ike::linear<4, 2>{}, ike::seed{1});
ike::sgd optimizer{model, {.lr = 0.1}};
ike::tensor<float, ike::shape{8, 4}> x;
ike::tensor<float, ike::shape{8, 2}> y;
ike::tensor_dataset data{x, y};
ike::data_loader batches{data, {.batch = 4}};

#ifdef MENDED
const auto history = ike::fit(model, batches, ike::mse_loss{}, optimizer, {.epochs = 3});
#else
const auto history = ike::fit(model, data, ike::mse_loss{}, optimizer, {.epochs = 3});
#endif
