// expect: the function of a graph returns nothing: return a value, or a std::tuple of them
#include <ikebana/compose/graph.hpp>
#include <ikebana/nn/activation.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::graph([](auto x) { return ike::relu{}(x); });
#else
constexpr auto net = ike::graph([](auto x) { ike::relu{}(x); });
#endif
