// A missing operator is one error, in the user's line.
// expect: ikebana: values of a graph have no operator -, only x \+ y and x \* y
// note: graph_subtraction\.cc:16
// line: 6
#include <ikebana/compose/graph.hpp>

namespace ike = ikebana;

constexpr auto sum = [](auto x, auto y) { return x + y; };

#ifdef MENDED
constexpr auto net = ike::graph(sum);
#else
constexpr auto net = ike::graph([](auto x, auto y) {
  auto h = x * y;
  return h - y;
});
#endif
