// expect: both: concat expects dim -9 to be one of the input's \(input \[32, 10\]\)
#include <ikebana/compose/parallel.hpp>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/concat.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net =
    ike::sequential(ike::parallel("a"_m = ike::lazy_linear<10>{}, "b"_m = ike::lazy_linear<10>{}),
                    "both"_m = ike::concat<ike::dim<-1>>{});
#else
constexpr auto net =
    ike::sequential(ike::parallel("a"_m = ike::lazy_linear<10>{}, "b"_m = ike::lazy_linear<10>{}),
                    "both"_m = ike::concat<ike::dim<-9>>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
