// expect: in a graph, a module with parameters or randomness needs a name
#include <ikebana/compose/graph.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::graph([](auto x) {
#ifdef MENDED
  return "fc"_m(ike::lazy_linear<4>{}, x);
#else
  return ike::lazy_linear<4>{}(x);
#endif
});
