// expect: ikebana: a value of a graph is no condition for if
// expect: use where.condition, a, b., or choose
// line: 12
#include <ikebana/compose/graph.hpp>
#include <ikebana/ops/elementwise.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::graph([](auto x) { return ike::where(x > 0, x * 2, -x); });
#else
constexpr auto net = ike::graph([](auto x) {
  if (x > 0) return x * 2;
  return -x;
});
#endif
