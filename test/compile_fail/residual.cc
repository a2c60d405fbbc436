// The summand has another number of channels than the input.
// page: 04 A residual whose body changes the shape
// expect: block\.add: add expects equal shapes, got \[32, 6, 8, 8\] and \[32, 4, 8, 8\]
#include <ikebana/compose/residual.hpp>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/conv.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential(
    "block"_m = ike::residual("conv"_m = ike::lazy_conv2d<4, ike::kernel<3>, ike::padding<1>>{}));
#else
constexpr auto net = ike::sequential(
    "block"_m = ike::residual("conv"_m = ike::lazy_conv2d<6, ike::kernel<3>, ike::padding<1>>{}));
#endif

auto model = ike::initialize<float, ike::shape{32, 4, 8, 8}>(net, ike::seed{1});
