// An image too small for that much reflection.
// expect: conv1: conv2d expects spatial extents of at least 5 \(more than the padding, which reflects\), got 4 \(input \[32, 1, 4, 4\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/conv.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential(
    "conv1"_m =
        ike::lazy_conv2d<8, ike::kernel<3>, ike::padding<4>, ike::padding_mode<"reflect">>{});

#ifdef MENDED
auto model = ike::initialize<float, ike::shape{32, 1, 5, 5}>(net, ike::seed{1});
#else
auto model = ike::initialize<float, ike::shape{32, 1, 4, 4}>(net, ike::seed{1});
#endif
