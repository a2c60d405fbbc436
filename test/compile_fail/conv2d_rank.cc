// A batch of images that lost its channel dimension.
// expect: conv1: conv2d expects an input of 3 \(unbatched\) or 4 dimensions, got 2 \(input \[32, 784\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/conv.hpp>
#include <ikebana/nn/flatten.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential("conv1"_m = ike::lazy_conv2d<8, ike::kernel<3>>{},
                                     "flatten"_m = ike::flatten{});
#else
constexpr auto net =
    ike::sequential("flatten"_m = ike::flatten{}, "conv1"_m = ike::conv2d<1, 8, ike::kernel<3>>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 1, 28, 28}>(net, ike::seed{1});
