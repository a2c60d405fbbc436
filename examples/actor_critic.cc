// Advantage actor-critic (Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, 2016):
// one model with three methods, of which one acts, one judges states and one learns. It balances a
// pole on a cart; the learning curve is drawn in the file that is named on the command line.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <tuple>
#include <vector>

#include "examples/cart_pole.hpp"
#include "ikebana/ikebana.hpp"
#include "ikebana/ops.hpp"
#include "ikebana/train/plot.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

constexpr auto body = ike::sequential("fc1"_m = ike::lazy_linear<64>{}, ike::tanh{},
                                      "fc2"_m = ike::lazy_linear<64>{}, ike::tanh{});
constexpr auto actor = ike::lazy_linear<2>{};
constexpr auto critic =
    ike::sequential("fc"_m = ike::lazy_linear<1>{}, ike::flatten<ike::start_dim<0>>{});

// One model with several ways through it: modules of one name are one.
constexpr auto agent = ike::methods(
    "act"_m = ike::graph([](auto s) { return "actor"_m(actor, "body"_m(body, s)); }),
    "judge"_m = ike::graph([](auto s) { return "critic"_m(critic, "body"_m(body, s)); }),
    "learn"_m = ike::graph([](auto s) {
      const auto h = "body"_m(body, s);
      return std::tuple("actor"_m(actor, h), "critic"_m(critic, h));
    }));

// Terms of a loss, one of them with a weight for each sample.
constexpr auto loss = [](auto logits, auto judged, auto action, auto returns) {
  const auto advantage = ike::stop_gradient(returns - judged);
  const auto surprise = ike::cross_entropy{.reduction = ike::reduction::none}(logits, action);
  const auto spread = ike::cross_entropy{}(logits, ike::softmax<ike::dim<1>>{}(logits));
  return ike::mean(advantage * surprise) + 0.5 * ike::mse_loss{}(judged, returns) - 0.01 * spread;
};

constexpr int carts = 16, steps = 32, longest = 200;

int main(int argc, char** argv) {
  constexpr shape states{dynamic, 4};
  auto model = ike::initialize<float, states, states, states>(agent, ike::seed{1});
  auto act = model.part<"act">();
  auto judge = model.part<"judge">();
  auto learn = model.part<"learn">();
  ike::adam optimizer{model, {.lr = 3e-3f}};

  std::uint64_t drawn = 0;
  const auto random = [&] { return ike::random_stream{ike::seed{2}, drawn++}; };
  cart all[carts];
  for (cart& c : all) c.reset(random());
  ike::tensor<float, shape{steps, carts, 4}> seen;
  ike::tensor<std::int64_t, shape{steps * carts}> action;
  ike::tensor<float, shape{steps * carts}> returns;
  ike::tensor<float, shape{carts, 4}> now;
  double mean_age = 20;
  std::vector<double> ages;
  for (int update = 0; update < 200; ++update) {
    bool fell[steps][carts]{};
    const auto observe = [&] {
      for (int c = 0; c < carts; ++c) std::copy_n(all[c].state.data(), 4, now.data() + 4 * c);
    };
    for (int t = 0; t < steps; ++t) {
      observe();
      std::copy_n(now.data(), now.size(), seen.data() + t * now.size());
      const auto logits = act(now);
      float chance[carts];
      ike::fill_uniform(random(), 0.5f, chance, carts);
      for (int c = 0; c < carts; ++c) {
        const bool right = (chance[c] + 0.5f) * (1 + std::exp(logits(c, 0) - logits(c, 1))) < 1;
        action[t * carts + c] = right ? 1 : 0;
        fell[t][c] = all[c].push(right) || all[c].age == longest;
        if (!fell[t][c]) continue;
        mean_age += 0.05 * (all[c].age - mean_age);
        all[c].reset(random());
      }
    }
    // What is to come, with the judgement of the last state.
    observe();
    const auto later = judge(now);
    for (int c = 0; c < carts; ++c) {
      float r = later[c];
      for (int t = steps; t-- > 0;)
        returns[t * carts + c] = r = 0.1f + (fell[t][c] ? 0 : 0.99f * r);
    }
    learn.train_step(ike::reshape<shape{steps * carts, 4}>(seen), ike::inputs(action, returns),
                     loss, optimizer);
    ages.push_back(mean_age);
  }
  std::printf("at last, the pole stands for %.0f steps of at most %d\n", mean_age, longest);
  ike::plot figure;
  figure.curves({.title = "steps until the pole falls", .x_label = "update"},
                {{"moving average", ages}});
  if (argc > 1) figure.save(argv[1]);
  return mean_age > 120 ? 0 : 1;
}
