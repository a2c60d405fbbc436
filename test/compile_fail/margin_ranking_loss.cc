// expect: margin_ranking_loss expects two scores and a target of one shape, got \[32\] and \[32, 1\]
#include <ikebana/ikebana.hpp>
#include <ikebana/ops/ranking_loss.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::graph([](auto a, auto b) {
  constexpr auto score = ike::linear<10, 1>{};
  return std::tuple(ike::flatten<ike::start_dim<0>>{}("score"_m(score, a)),
                    ike::flatten<ike::start_dim<0>>{}("score"_m(score, b)));
});

auto model = ike::initialize<float, ike::shape{32, 10}, ike::shape{32, 10}>(net, ike::seed{1});
ike::tensor<float, ike::shape{32, 10}> a, b;
#ifdef MENDED
ike::tensor<float, ike::shape{32}> y;
#else
ike::tensor<float, ike::shape{32, 1}> y;
#endif

void step() { model.loss_backward(ike::inputs(a, b), y, ike::margin_ranking_loss{}); }
