// Contrastive learning: two towers see the left and the right half of handwritten digits, and learn
// which halves belong together. The loss is part of the formula. The
// learning curves are drawn in the file that is named on the command line.

#include <cstdio>
#include <tuple>
#include <vector>

#include "ikebana/ikebana.hpp"
#include "ikebana/io/csv.hpp"
#include "ikebana/ops.hpp"
#include "ikebana/train/plot.hpp"

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

int main(int argc, char** argv) {
  const auto table = ike::read_csv<float>("examples/data/digits.csv");
  ike::tensor pixels = ike::columns(table, 0, 64);
  for (float& p : pixels) p /= 16;
  const auto images = ike::reshape<shape{ike::dynamic, 8, 8}>(pixels);
  const ike::dim_t batch = 64, kept = images.extent(0) - batch;

  auto model = ike::initialize<float, shape{ike::dynamic, 8, 8}>(network, ike::seed{1});
  ike::adamw optimizer{model, {.lr = 3e-3f, .weight_decay = 1e-2f}};
  const auto one = ike::ones<float, shape{}>();
  std::vector<double> seen, unseen, found;
  for (int epoch = 0; epoch < 80; ++epoch) {
    double sum = 0, batches = 0;
    for (ike::dim_t i = 0; i + batch <= kept; i += batch) {
      const auto [loss, hits] = model(ike::slice(images, i, i + batch));
      sum += static_cast<double>(loss[0]);
      ++batches;
      model.zero_grad();
      model.backward(std::tuple{one, ike::no_gradient});
      optimizer.step();
    }
    seen.push_back(sum / batches);
    const auto [loss, hits] = model(ike::slice(images, kept, kept + batch));
    unseen.push_back(static_cast<double>(loss[0]));
    found.push_back(100 * static_cast<double>(hits[0]));
  }
  std::printf("of %d unseen images, %.0f %% of the left halves find their right half\n",
              static_cast<int>(batch), found.back());
  ike::plot figure;
  figure.curves({.title = "loss"}, {{"seen", seen}, {"unseen", unseen}});
  figure.curves({.title = "found right halves of unseen images"}, {{"per cent", found}});
  if (argc > 1) figure.save(argv[1]);
  return found.back() > 25 ? 0 : 1;
}
