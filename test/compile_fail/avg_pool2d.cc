// expect: pool: avg_pool2d expects an input of 3 \(unbatched\) or 4 dimensions, got 2 \(input \[32, 64\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/flatten.hpp>
#include <ikebana/nn/pool.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net =
    ike::sequential("pool"_m = ike::avg_pool2d<ike::kernel<2>>{}, "flatten"_m = ike::flatten{});
#else
constexpr auto net =
    ike::sequential("flatten"_m = ike::flatten{}, "pool"_m = ike::avg_pool2d<ike::kernel<2>>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 1, 8, 8}>(net, ike::seed{1});
