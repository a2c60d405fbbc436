// expect: ikebana: the function of a graph returns a number: return a value that its arguments make, or a std::tuple of them
#include <ikebana/compose/graph.hpp>
#include <ikebana/ops/elementwise.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::graph([](auto x) { return x * 2.0; });
#else
constexpr auto net = ike::graph([](auto) { return 2.0; });
#endif
