// expect: pool: max_pool2d expects padding of at most kernel / 2 = 1, got 2 \(input \[32, 8, 9, 9\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/pool.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential("pool"_m = ike::max_pool2d<ike::kernel<3>, ike::padding<1>>{});
#else
constexpr auto net = ike::sequential("pool"_m = ike::max_pool2d<ike::kernel<3>, ike::padding<2>>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 8, 9, 9}>(net, ike::seed{1});
