// Advantage actor-critic (Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, 2016):
// one model with three methods, of which one acts, one judges states and one learns. It balances a
// pole on a cart (Barto, Sutton and Anderson, Neuronlike adaptive elements, 1983).

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <tuple>

#include "ikebana/ikebana.hpp"
#include "ikebana/ops.hpp"

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

struct cart {
  std::array<float, 4> state{};  // position, velocity, angle, angular velocity
  int age = 0;

  void reset(const ike::random_stream& random) {
    ike::fill_uniform(random, 0.05f, state.data(), 4);
    age = 0;
  }
  /// Pushes for 20 ms; returns whether the pole or the cart has left its range.
  bool push(bool right) {
    auto& [x, v, angle, spin] = state;
    const float force = right ? 10.0f : -10.0f, s = std::sin(angle), c = std::cos(angle);
    const float t = (force + 0.05f * spin * spin * s) / 1.1f;
    const float turn = (9.8f * s - c * t) / (0.5f * (4.0f / 3 - 0.1f * c * c / 1.1f));
    const float push = t - 0.05f * turn * c / 1.1f;
    x += 0.02f * v;
    v += 0.02f * push;
    angle += 0.02f * spin;
    spin += 0.02f * turn;
    ++age;
    return std::abs(x) > 2.4f || std::abs(angle) > 0.2095f;
  }
};

int main() {
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
  float mean_age = 20;
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
        mean_age += 0.05f * (static_cast<float>(all[c].age) - mean_age);
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
    if (update % 25 == 24)
      std::printf("%6d steps: the pole stands for %3.0f steps of at most %d\n",
                  (update + 1) * steps * carts, static_cast<double>(mean_age), longest);
  }
  return mean_age > 120 ? 0 : 1;
}
