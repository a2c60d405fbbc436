// The output of a flatten has no planes to pool over.
// expect: pool: adaptive_avg_pool2d expects an input of 3 \(unbatched\) or 4 dimensions, got 2 \(input \[32, 200\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/adaptive_pool.hpp>
#include <ikebana/nn/flatten.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net =
    ike::sequential("pool"_m = ike::adaptive_avg_pool2d<ike::output_size<1>>{}, ike::flatten{});
#else
constexpr auto net =
    ike::sequential(ike::flatten{}, "pool"_m = ike::adaptive_avg_pool2d<ike::output_size<1>>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 8, 5, 5}>(net, ike::seed{1});
