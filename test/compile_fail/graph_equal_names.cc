// expect: two modules of one graph have the same name
#include <ikebana/compose/graph.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::graph([](auto x) {
  auto h = "fc"_m(ike::lazy_linear<4>{}, x);
#ifdef MENDED
  return "fc2"_m(ike::lazy_linear<4>{}, h);
#else
  return "fc"_m(ike::lazy_linear<4>{}, h);
#endif
});
