// A mistake in the function is one error.
// expect-gcc: has no member named .shape
// expect-clang: no member named .shape
// line: 16
// max-lines: 40
#include <ikebana/compose/loss.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/ops/elementwise.hpp>
#include <ikebana/ops/reduction.hpp>

namespace ike = ikebana;

auto model = ike::initialize<float, ike::shape{32, 20}>(ike::linear<20, 10>{}, ike::seed{1});
ike::tensor<float, ike::shape{32, 20}> x;
ike::tensor<float, ike::shape{32, 10}> t;
#ifdef MENDED
constexpr auto difference = [](auto y, auto target) { return ike::mean(y - target); };
#else
constexpr auto difference = [](auto y, auto target) { return ike::mean(y.shape - target); };
#endif

void step() { model.loss_backward(x, t, difference); }
