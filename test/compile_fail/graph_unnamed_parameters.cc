// expect: in a graph, a module with parameters or randomness needs a name
// line: 8
// max-lines: 40
#include <ikebana/compose/graph.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
inline constexpr auto net = ike::graph([](auto x) { return "fc1"_m(ike::lazy_linear<8>{}, x); });
#else
inline constexpr auto net = ike::graph([](auto x) { return ike::lazy_linear<8>{}(x); });
#endif
