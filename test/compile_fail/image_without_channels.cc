// expect: conv1\.weight: has shape \[8, dynamic, 3, 3\]: the batch, dimension 0 of the input, has become channels; an input of convolutions is \[batch, channels
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/conv.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("conv1"_m = ike::lazy_conv2d<8, ike::kernel<3>>{});

#ifdef MENDED
auto model = ike::initialize<float, ike::shape{ike::dynamic, 1, 28, 28}>(net, ike::seed{1});
#else
auto model = ike::initialize<float, ike::shape{ike::dynamic, 28, 28}>(net, ike::seed{1});
#endif
