// expect: bn1: batch_norm2d expects num_features = 4, got 8 \(input \[32, 8, 26, 26\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/batch_norm.hpp>
#include <ikebana/nn/conv.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential("conv1"_m = ike::lazy_conv2d<8, ike::kernel<3>>{},
                                     "bn1"_m = ike::batch_norm2d<8>{});
#else
constexpr auto net = ike::sequential("conv1"_m = ike::lazy_conv2d<8, ike::kernel<3>>{},
                                     "bn1"_m = ike::batch_norm2d<4>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 1, 28, 28}>(net, ike::seed{1});
