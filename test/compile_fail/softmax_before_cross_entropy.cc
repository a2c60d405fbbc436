// expect: 1: softmax is computed twice: cross_entropy takes logits and computes it itself, so leave this module out
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/loss.hpp>
#include <ikebana/nn/softmax.hpp>
#include <ikebana/optim/adam.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential(ike::lazy_linear<10>{});
#else
constexpr auto net = ike::sequential(ike::lazy_linear<10>{}, ike::softmax<>{});
#endif
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
ike::tensor<float, ike::shape{32, 20}> x;
ike::tensor<std::int64_t, ike::shape{32}> target;
ike::adam optimizer{model};
auto loss = model.train_step(x, target, ike::cross_entropy{}, optimizer);
