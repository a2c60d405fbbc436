// expect: conv: causal_conv1d that is stateful expects a length divisible by stride = 2, got 3 \(input \[1, 1, 3\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/causal_conv1d.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential(
    "conv"_m = ike::causal_conv1d<1, 8, ike::kernel<3>, ike::stride<2>, ike::stateful<1>>{});
#ifdef MENDED
auto model = ike::initialize<float, ike::shape{1, 1, 4}>(net, ike::seed{1});
#else
auto model = ike::initialize<float, ike::shape{1, 1, 3}>(net, ike::seed{1});
#endif
