// expect: 0: reshape expects a multiple of 7 elements, got 640 \(input \[32, 20\], to \[dynamic, 7\]\)
#include <ikebana/compose/graph.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/ops/view.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::graph([](auto x) { return ike::reshape<-1, 10>(x); });
#else
constexpr auto net = ike::graph([](auto x) { return ike::reshape<-1, 7>(x); });
#endif

auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
