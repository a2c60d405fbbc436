// Contrastive learning: two towers see the left and the right half of handwritten digits, and learn
// which halves belong together. The loss is part of the formula.

#include <cstdio>
#include <tuple>

#include "ikebana/ikebana.hpp"
#include "ikebana/io/csv.hpp"
#include "ikebana/ops.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

constexpr auto tower = ike::graph([](auto half) {  // [N, 8, 4] -> [N, 16] of length 1
  auto h = ike::gelu{}("fc1"_m(ike::lazy_linear<128>{}, ike::flatten{}(half)));
  return ike::normalize("fc2"_m(ike::lazy_linear<16>{}, h));
});

// InfoNCE (van den Oord et al., Representation Learning with Contrastive Predictive Coding, 2018),
// in both directions, at a temperature of 0.1.
constexpr auto network = ike::graph([](auto images) {  // [N, 8, 8]
  auto a = "left"_m(tower, ike::slice<2>(images, 0, 4));
  auto b = "right"_m(tower, ike::slice<2>(images, 4, 8));
  auto scores = ike::matmul_nt(a, b) / 0.1;  // [N, N]
  auto own = ike::sum<1>(a * b) / 0.1;
  auto loss = ike::mean(ike::logsumexp<1>(scores) + ike::logsumexp<0>(scores) - 2 * own);
  auto hits = ike::argmax<1>(scores) == ike::arange_like<0>(own);
  return std::tuple{loss, ike::mean(hits)};
});

int main() {
  const auto table = ike::read_csv<float>("examples/data/digits.csv");
  ike::tensor pixels = ike::columns(table, 0, 64);
  for (float& p : pixels) p /= 16;
  const auto images = ike::reshape<shape{ike::dynamic, 8, 8}>(pixels);
  const ike::dim_t batch = 64, kept = images.extent(0) - batch;

  auto model = ike::initialize<float, shape{ike::dynamic, 8, 8}>(network, ike::seed{1});
  ike::adamw optimizer{model, {.lr = 3e-3f, .weight_decay = 1e-2f}};
  const auto one = ike::ones<float, shape{}>(), none = ike::zeros<float, shape{}>();
  for (int epoch = 0; epoch < 80; ++epoch)
    for (ike::dim_t i = 0; i + batch <= kept; i += batch) {
      model(ike::slice(images, i, i + batch));
      model.zero_grad();
      model.backward(std::tuple{one, none});
      optimizer.step();
    }
  model.eval();
  const auto [loss, hits] = model(ike::slice(images, kept, kept + batch));
  std::printf("of %d unseen images, %.0f %% of the left halves find their right half\n",
              static_cast<int>(batch), static_cast<double>(100 * hits[0]));
  return hits[0] > 0.25f ? 0 : 1;
}
