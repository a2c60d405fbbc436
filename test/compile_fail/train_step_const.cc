// expect: a model that is const cannot be trained: backward writes its gradients
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
ike::tensor<std::int64_t, ike::shape{32}> target;
ike::adam optimizer{model};

#ifdef MENDED
auto loss = model.train_step(x, target, ike::cross_entropy{}, optimizer);
#else
const auto& fixed = model;
auto loss = fixed.train_step(x, target, ike::cross_entropy{}, optimizer);
#endif
