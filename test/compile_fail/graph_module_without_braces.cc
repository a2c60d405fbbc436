// expect: ikebana: a module is made and then applied: relu\{\}\(x\)
// line: 7
#include <ikebana/compose/graph.hpp>
#include <ikebana/nn/activation.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::graph([](auto x) { return ike::relu{}(x); });
#else
constexpr auto net = ike::graph([](auto x) { return ike::relu(x); });
#endif
