// Training with products in bfloat16, compared with the same network in float.

#include <cmath>
#include <ikebana/ikebana.hpp>
#include <ikebana/model/precision.hpp>
#include <iostream>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto mlp = ike::sequential("fc1"_m = ike::lazy_linear<128>{}, ike::relu{},
                                     "fc2"_m = ike::lazy_linear<128>{}, ike::relu{},
                                     "head"_m = ike::lazy_linear<3>{});

/// Points of three classes on three arms of a spiral.
auto spirals(ike::dim_t count) {
  auto x = ike::zeros<float, ike::shape{ike::dynamic, 2}>(count);
  auto t = ike::zeros<std::int64_t, ike::shape{ike::dynamic}>(count);
  for (ike::dim_t i = 0; i < count; ++i) {
    t[i] = i % 3;
    const double r = static_cast<double>(i) / static_cast<double>(count);
    const double angle = 4 * r + 2.1 * static_cast<double>(t[i]);
    x(i, 0) = static_cast<float>(r * std::cos(angle));
    x(i, 1) = static_cast<float>(r * std::sin(angle));
  }
  return ike::tensor_dataset(std::move(x), std::move(t));
}

double accuracy_after_training(auto& model, const auto& data) {
  ike::adam adam{model, {.lr = 1e-2}};
  ike::data_loader batches(data, {.batch = 32, .shuffle = ike::seed{2}});
  for (int epoch = 0; epoch < 30; ++epoch)
    for (auto [x, t] : batches) model.train_step(x, t, ike::cross_entropy{}, adam);
  return ike::accuracy(model(data.features()), data.targets());
}

int main() {
  const auto data = spirals(600);

  // Takes the place of a model's element type. Tensors, states and optimizers stay in float.
  using ike::bf16, ike::precision;
  auto model = ike::initialize<precision<bf16>, ike::shape{ike::dynamic, 2}>(mlp, ike::seed{1});
  const double rounded = accuracy_after_training(model, data);

  // A module can be excluded by its path: its products stay in float.
  using but_the_head = precision<bf16, ike::full_precision_at<"head">>;
  auto partly = ike::initialize<but_the_head, ike::shape{ike::dynamic, 2}>(mlp, ike::seed{1});
  const double but_one = accuracy_after_training(partly, data);

  auto exact = ike::initialize<float, ike::shape{ike::dynamic, 2}>(mlp, ike::seed{1});
  const double full = accuracy_after_training(exact, data);
  std::cout << "accuracy: bfloat16 " << rounded << ", but for the head " << but_one << ", float "
            << full << "\n";

  // States can be exchanged between the two.
  ike::load_state_dict(exact, ike::get_state_dict(model));
  const double moved = ike::accuracy(exact(data.features()), data.targets());
  return rounded > 0.9 && but_one > 0.9 && full > 0.9 && std::abs(moved - rounded) < 0.02 ? 0 : 1;
}
