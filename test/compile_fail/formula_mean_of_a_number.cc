// expect: sum, mean, max, min and logsumexp take dimensions in angle brackets: mean<1>\(x\), sum<-1>\(x, keepdim\)
// line: 5
#include <ikebana/compose/graph.hpp>
#include <ikebana/ops/reduction.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::graph([](auto x) { return ike::mean<1>(x); });
#else
constexpr auto net = ike::graph([](auto x) { return ike::mean(x, 1); });
#endif
