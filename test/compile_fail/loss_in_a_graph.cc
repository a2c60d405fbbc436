// expect: mse_loss expects a target of shape \[32, 3\], got \[32, 1\]
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using namespace ike::literals;

auto model = ike::initialize<float, ike::shape{32, 10}>(
    ike::sequential("fc"_m = ike::linear<10, 3>{}), ike::seed{1});
ike::tensor<float, ike::shape{32, 10}> x;
#ifdef MENDED
ike::tensor<float, ike::shape{32, 3}> y;
#else
ike::tensor<float, ike::shape{32, 1}> y;
#endif

constexpr auto half = [](auto a, auto b) { return 0.5 * ike::mse_loss{}(a, b); };

void step() { model.loss_backward(x, y, half); }
