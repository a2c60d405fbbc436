// expect: pool: max_pool2d expects a padded input of at least 3 \(the reach of the kernel\), got 2 \(input \[32, 8, 2, 2\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/pool.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential("pool"_m = ike::max_pool2d<ike::kernel<2>>{});
#else
constexpr auto net = ike::sequential("pool"_m = ike::max_pool2d<ike::kernel<3>>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 8, 2, 2}>(net, ike::seed{1});
