// expect: fc1: two children have this name, 0 and 1
#include <ikebana/compose/graph.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
inline constexpr auto net = ike::graph(
    [](auto x) { return "fc2"_m(ike::lazy_linear<8>{}, "fc1"_m(ike::lazy_linear<4>{}, x)); });
#else
inline constexpr auto net = ike::graph(
    [](auto x) { return "fc1"_m(ike::lazy_linear<8>{}, "fc1"_m(ike::lazy_linear<4>{}, x)); });
#endif

auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
