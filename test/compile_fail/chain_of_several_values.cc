// expect: fc: linear takes 1 input, got 2: concat, add and mul make one value of several
#include <ikebana/compose/parallel.hpp>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/concat.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto branches = ike::parallel(ike::lazy_linear<5>{}, ike::lazy_linear<6>{});

#ifdef MENDED
constexpr auto net =
    ike::sequential(branches, ike::concat<ike::dim<1>>{}, "fc"_m = ike::lazy_linear<3>{});
#else
constexpr auto net = ike::sequential(branches, "fc"_m = ike::lazy_linear<3>{});
#endif
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
