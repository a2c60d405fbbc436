// expect: rigth: is not the name of an input; there are left, right
#include <ikebana/compose/graph.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/module/arithmetic.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::graph<"left", "right">(
    [](auto left, auto right) { return "fc"_m(ike::lazy_linear<3>{}, left) + right; });
auto model = ike::initialize<float, ike::shape{2, 4}, ike::shape{2, 3}>(net, ike::seed{1});
ike::tensor<float, ike::shape{2, 4}> left;
ike::tensor<float, ike::shape{2, 3}> right;

#ifdef MENDED
auto y = model(left, "right"_arg = right);
#else
auto y = model(left, "rigth"_arg = right);
#endif
