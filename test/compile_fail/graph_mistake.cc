// A mistake in the function is one error, not one for each number of symbols or use of the graph.
// expect-gcc: has no member named .shape
// expect-clang: no member named .shape
// line: 5
#include <ikebana/compose/graph.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/module/arithmetic.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::graph([](auto x, auto y) { return x + y; });
#else
constexpr auto net = ike::graph([](auto x, auto y) { return x.shape + y; });
#endif

auto model = ike::initialize<float, ike::shape{2, 3}, ike::shape{2, 3}>(net, ike::seed{1});
