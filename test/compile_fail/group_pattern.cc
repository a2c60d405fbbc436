// expect: haed: is not the path of a parameter; there are head.weight, fc.weight, fc.bias, head.bias
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net =
    ike::sequential("fc"_m = ike::lazy_linear<10>{}, "head"_m = ike::linear<10, 2>{});

void make() {
  auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
#ifdef MENDED
  ike::adamw optimizer{model, {.lr = 1e-3}, ike::group<"head">{.lr = 1e-2}};
#else
  ike::adamw optimizer{model, {.lr = 1e-3}, ike::group<"haed">{.lr = 1e-2}};
#endif
}
