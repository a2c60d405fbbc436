// The alternatives of a choice give different shapes.
// expect: path\.choice: the alternatives of choose give equal shapes, got \[32, 6\] and \[32, 5\]
#include <ikebana/compose/choose.hpp>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential(
    "path"_m = ike::choose("a"_m = ike::lazy_linear<6>{}, "b"_m = ike::lazy_linear<6>{}));
#else
constexpr auto net = ike::sequential(
    "path"_m = ike::choose("a"_m = ike::lazy_linear<6>{}, "b"_m = ike::lazy_linear<5>{}));
#endif

auto model = ike::initialize<float, ike::shape{32, 4}>(net, ike::seed{1});
