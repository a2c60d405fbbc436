// expect: fit takes batches, no tensors: tensor_dataset data\{x, t\}; data_loader batches\{data, \{.batch = 32\}\}; fit\(model, batches, cross_entropy\{\}, optimizer\)
#include <ikebana/io/data_loader.hpp>
#include <ikebana/io/dataset.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/loss.hpp>
#include <ikebana/optim/sgd.hpp>
#include <ikebana/train/fit.hpp>

namespace ike = ikebana;

auto model = ike::initialize<float, ike::shape{32, 20}>(ike::linear<20, 10>{}, ike::seed{1});
ike::sgd optimizer{model, {.lr = 0.1}};
ike::tensor<float, ike::shape{320, 20}> x;
ike::tensor<float, ike::shape{320, 10}> y;
ike::tensor_dataset data{x, y};
ike::data_loader batches{data, {.batch = 32}};

#ifdef MENDED
const auto history = ike::fit(model, batches, ike::mse_loss{}, optimizer, {.epochs = 3});
#else
const auto history = ike::fit(model, x, y, ike::mse_loss{}, optimizer, {.epochs = 3});
#endif
