// Loads the backbone of a trained network under another head. First the head is trained alone, then
// all, the head faster than the backbone.

#include <cstdio>
#include <ikebana/compose/frozen.hpp>
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr ike::shape rows{ike::dynamic, 3};
constexpr auto backbone =
    ike::sequential("fc"_m = ike::lazy_linear<32>{}, "norm"_m = ike::lazy_layer_norm<>{},
                    "tanh"_m = ike::tanh{}, "fc2"_m = ike::lazy_linear<32>{}, ike::relu{});
constexpr auto with_1_output =
    ike::sequential("backbone"_m = backbone, "head"_m = ike::lazy_linear<1>{});
constexpr auto with_2_outputs =
    ike::sequential("backbone"_m = backbone, "head"_m = ike::lazy_linear<2>{});

int main() {
  const auto x = ike::uniform<float, ike::shape{64, 3}>(ike::seed{1});
  auto y = ike::zeros<float, ike::shape{64, 1}>();
  auto y2 = ike::zeros<float, ike::shape{64, 2}>();
  for (ike::dim_t i = 0; i < 64; ++i) {
    y(i, 0) = x(i, 0) * x(i, 1) - x(i, 2);
    y2(i, 0) = x(i, 0) * x(i, 1);
    y2(i, 1) = y(i, 0) + x(i, 0);
  }

  auto trained = ike::initialize<float, rows>(with_1_output, ike::seed{2});
  ike::adam first{trained, {.lr = 0.01}};
  for (int step = 0; step < 300; ++step) trained.train_step(x, y, ike::mse_loss{}, first);

  auto frozen = ike::initialize<float, rows>(ike::frozen<"backbone">(with_2_outputs), ike::seed{3});
  ike::load_state_dict(frozen, ike::get_state_dict(trained), ike::only<"backbone">);
  ike::adam of_head{frozen, {.lr = 3e-2}};
  for (int step = 0; step < 100; ++step) frozen.train_step(x, y2, ike::mse_loss{}, of_head);

  auto model = ike::initialize<float, rows>(with_2_outputs, ike::seed{3});
  ike::load_state_dict(model, ike::get_state_dict(frozen));
  ike::adamw optimizer{model,
                       {.lr = 1e-3, .betas = {0.9, 0.95}, .weight_decay = 0.05},
                       ike::group<"head">{.lr = 1e-2},
                       ike::no_decay<"*.bias", "*norm*">{}};
  float loss = 0;
  for (int step = 0; step < 300; ++step) loss = model.train_step(x, y2, ike::mse_loss{}, optimizer);
  std::printf("loss %.5f\n", static_cast<double>(loss));
  return loss < 0.005F ? 0 : 1;
}
