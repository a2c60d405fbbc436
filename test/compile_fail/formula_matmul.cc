// expect: block\.0: matmul expects equal inner extents, got 20 of \[32, 20\] and 32 of \[32, 20\]
#include <ikebana/compose/graph.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/ops/product.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto square = ike::graph([](auto x) { return ike::matmul_nt(x, x); });
#else
constexpr auto square = ike::graph([](auto x) { return ike::matmul(x, x); });
#endif
constexpr auto net = ike::graph([](auto x) { return "block"_m(square, x); });

auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
