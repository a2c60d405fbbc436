// The number of weights would overflow.
// expect: table: with a tensor of shape \[1099511627776, 1073741824\], the network has more than 2\^56 elements
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/embedding.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential("table"_m = ike::embedding<40, 30>{});
#else
constexpr auto net =
    ike::sequential("table"_m = ike::embedding<ike::dim_t{1} << 40, ike::dim_t{1} << 30>{});
#endif

auto model = ike::initialize<float, ike::shape{2}>(net, ike::seed{1});
