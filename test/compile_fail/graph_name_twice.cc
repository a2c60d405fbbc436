// expect: ikebana: two modules of one graph have the same name
#include <ikebana/compose/graph.hpp>
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
