// Two poolings too many: the image is smaller than the kernel.
// page: 03 An image that is too small for the kernel
// expect: conv1: conv2d expects a padded input of at least 5 \(the reach of the kernel\), got 4 \(input \[32, 1, 4, 4\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/conv.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net =
    ike::sequential("conv1"_m = ike::lazy_conv2d<8, ike::kernel<5>, ike::padding<1>>{});
#else
constexpr auto net = ike::sequential("conv1"_m = ike::lazy_conv2d<8, ike::kernel<5>>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 1, 4, 4}>(net, ike::seed{1});
