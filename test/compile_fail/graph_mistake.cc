// A mistake in the function is one error, not one for each number of symbols.
// expect-gcc: has no member named .shape
// expect-clang: no member named .shape
// line: 5
#include <ikebana/compose/graph.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::graph([](auto x, auto y) { return x + y; });
#else
constexpr auto net = ike::graph([](auto x, auto y) { return x.shape + y; });
#endif
