// A custom module's diagnostics name its modules too.
// expect: fc2: linear expects in_features = 12, got 10 \(input \[32, 10\]\)
#include <ikebana/compose/graph.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/activation.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::graph([](auto x) {
  auto h = ike::relu{}("fc1"_m(ike::lazy_linear<10>{}, x));
  return "fc2"_m(ike::linear<10, 10>{}, h) + h;
});
#else
constexpr auto net = ike::graph([](auto x) {
  auto h = ike::relu{}("fc1"_m(ike::lazy_linear<10>{}, x));
  return "fc2"_m(ike::linear<12, 10>{}, h) + h;
});
#endif

auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
