// Trains on two replicas, threads of this program, whose gradients are averaged: the same network
// as one process with batches of twice the size.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ikebana/ikebana.hpp>
#include <ikebana/io/csv.hpp>
#include <ikebana/replicate.hpp>
#include <vector>

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<32>{}, ike::relu{},
                                     "fc2"_m = ike::lazy_linear<10>{});

/// Trains on so many replicas, and returns the parameters.
template <class Dataset>
std::vector<float> train(const Dataset& data, int replicas) {
  std::vector<float> trained;
  ike::launch(ike::threads{replicas}, [&](ike::process_group auto& group) {
    auto model =
        ike::replicate(ike::initialize<float, shape{ike::dynamic, 64}>(net, ike::seed{1}), group);
    ike::adam optimizer{model, {.lr = 1e-2}};
    ike::data_loader loader{
        data, {.batch = 64 / replicas, .shuffle = ike::seed{2}, .shard = group, .drop_last = true}};
    for (int epoch = 0; epoch < 5; ++epoch)
      for (auto [x, t] : loader) model.train_step(x, t, ike::cross_entropy{}, optimizer);
    if (group.rank() != 0) return;
    model.eval();
    std::printf("%d replicas: accuracy %.3f\n", replicas,
                ike::accuracy(model(data.features()), data.targets()));
    trained.assign(model.parameters().begin(), model.parameters().end());
  });
  return trained;
}

int main() {
  const auto table = ike::read_csv<float>("examples/data/digits.csv");
  ike::tensor images = ike::columns(table, 0, 64);
  for (float& p : images) p /= 16;
  const ike::tensor_dataset data{std::move(images), ike::labels(table, 64)};
  const auto one = train(data, 1), two = train(data, 2);
  float difference = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    difference = std::max(difference, std::abs(one[i] - two[i]));
  std::printf("largest difference %.1e\n", static_cast<double>(difference));
  return difference < 1e-3F ? 0 : 1;
}
