// expect: 1: sub expects shapes that can be broadcast, got \[32, 10\] and \[32, 20\]
#include <ikebana/compose/graph.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/ops/elementwise.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::graph([](auto x) { return "fc"_m(ike::lazy_linear<20>{}, x) - x; });
#else
constexpr auto net = ike::graph([](auto x) { return "fc"_m(ike::lazy_linear<10>{}, x) - x; });
#endif

auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
