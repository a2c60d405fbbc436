// expect: conv1: conv2d expects in_channels divisible by groups = 4, got 6 \(input \[32, 6, 28, 28\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/conv.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net =
    ike::sequential("conv1"_m = ike::lazy_conv2d<8, ike::kernel<3>, ike::groups<2>>{});
#else
constexpr auto net =
    ike::sequential("conv1"_m = ike::lazy_conv2d<8, ike::kernel<3>, ike::groups<4>>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 6, 28, 28}>(net, ike::seed{1});
