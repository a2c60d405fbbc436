// page: 14 Labels of another batch
// expect: cross_entropy expects a target extent of 32, got 16 \(logits \[32, 10\], target \[16\]\)
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
ike::tensor<float, ike::shape{32, 20}> x;

#ifdef MENDED
float loss = model.train_step(x, ike::tensor<std::int64_t, ike::shape{32}>(), ike::cross_entropy{},
                              optimizer);
#else
float loss = model.train_step(x, ike::tensor<std::int64_t, ike::shape{16}>(), ike::cross_entropy{},
                              optimizer);
#endif
