// expect: fc1: linear expects in_features = 20, got 12 \(input \[32, 12\]\)
// errors-clang: 2
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/loss.hpp>
#include <ikebana/optim/sgd.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
ike::sgd optimizer{model, {.lr = 0.1}};
ike::tensor<std::int64_t, ike::shape{32}> target;

#ifdef MENDED
float loss = model.train_step(ike::ones<float, ike::shape{32, 20}>(), target, ike::cross_entropy{},
                              optimizer);
#else
float loss = model.train_step(ike::ones<float, ike::shape{32, 12}>(), target, ike::cross_entropy{},
                              optimizer);
#endif
