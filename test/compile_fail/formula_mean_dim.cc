// expect: 0: mean expects a dim within 2 dimensions, got 2 \(input \[32, 20\]\)
#include <ikebana/compose/graph.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/ops/reduction.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::graph([](auto x) { return ike::mean<1>(x); });
#else
constexpr auto net = ike::graph([](auto x) { return ike::mean<2>(x); });
#endif

auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
