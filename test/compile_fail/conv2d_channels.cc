// page: 02 Channels that do not fit
// expect: conv1: conv2d expects in_channels = 3, got 1 \(input \[dynamic, 1, 28, 28\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/conv.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential("conv1"_m = ike::conv2d<1, 8, ike::kernel<3>>{});
#else
constexpr auto net = ike::sequential("conv1"_m = ike::conv2d<3, 8, ike::kernel<3>>{});
#endif

auto model = ike::initialize<float, ike::shape{ike::dynamic, 1, 28, 28}>(net, ike::seed{1});
