// Advantage actor-critic (Mnih et al., 2016): one model with two methods, of which one acts and one
// learns, balances a pole on a cart. Plots to the file that the command line names.
#include <cstdint>
#include <cstdio>
#include <tuple>

#include "examples/cart_pole.hpp"
#include "ikebana/ikebana.hpp"
#include "ikebana/ops.hpp"
#include "ikebana/train/plot.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

constexpr auto body = ike::sequential("fc1"_m = ike::lazy_linear<64>{}, ike::tanh{},
                                      "fc2"_m = ike::lazy_linear<64>{}, ike::tanh{});
// One model with several ways through it: modules of one name are one.
constexpr auto agent = ike::methods(
    "act"_m = ike::graph([](auto s) {  // The largest sum is a draw by softmax (Gumbel, 1954).
      auto logits = "actor"_m(ike::lazy_linear<2>{}, "body"_m(body, s));
      return logits - ike::log(-ike::log("draw"_m(ike::uniform_like{.low = 1e-6}, logits)));
    }),
    "learn"_m = ike::graph([](auto s) {
      auto h = "body"_m(body, s);
      return std::tuple("actor"_m(ike::lazy_linear<2>{}, h),
                        ike::squeeze<1>("critic"_m(ike::lazy_linear<1>{}, h)));
    }));

constexpr auto loss = [](auto logits, auto judged, auto action, auto returns) {
  auto advantage = ike::stop_gradient(returns - judged);
  auto surprise = ike::cross_entropy{.reduction = ike::reduction::none}(logits, action);
  return ike::mean(advantage * surprise) + 0.5 * ike::mse_loss{}(judged, returns);
};

int main(int argc, char** argv) {
  constexpr ike::dim_t carts = 16, batch = 32 * carts;
  constexpr shape states{ike::dynamic, 4};
  auto model = ike::initialize<float, states, states>(agent, ike::seed{1});
  auto act = model.part<"act">();
  auto learn = model.part<"learn">();
  ike::adam optimizer{model, {.lr = 3e-3f}};
  cart_poles<carts> poles{ike::seed{2}};
  ike::tensor<float, shape{batch, 4}> seen;
  ike::tensor<std::int64_t, shape{batch}> action;
  ike::tensor<float, shape{batch + carts}> gain;
  for (int update = 0; update < 200; ++update) {
    for (ike::dim_t i = 0; i < batch; i += carts) {
      ike::slice(seen, i, i + carts) = poles.states();
      ike::slice(action, i, i + carts) = ike::argmax(act(poles.states()));
      ike::slice(gain, i, i + carts) = poles.push(ike::slice(action, i, i + carts));
    }
    ike::slice(gain, batch, batch + carts) = std::get<1>(learn(poles.states()));
    for (ike::dim_t i = batch; i-- > 0;) gain[i] = 0.1f + 0.99f * gain[i] * gain[i + carts];
    learn.train_step(seen, ike::inputs(action, ike::slice(gain, 0, batch)), loss, optimizer);
  }
  if (argc > 1) ike::plot{}.curves({.x_label = "episode"}, {{"steps", poles.ages()}}).save(argv[1]);
  std::printf("at last, the pole stands for %.0f of 200 steps\n", poles.ages().back());
  return poles.ages().back() > 120 ? 0 : 1;
}
