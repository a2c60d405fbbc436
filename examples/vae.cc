// A variational autoencoder of digits as one formula, loss included. It draws new digits, in the
// file that is named on the command line.

#include <cstdio>
#include <vector>

#include "ikebana/ikebana.hpp"
#include "ikebana/io/csv.hpp"
#include "ikebana/ops.hpp"
#include "ikebana/train/plot.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;
constexpr ike::dim_t latent = 8;

constexpr auto decoder = ike::sequential("fc1"_m = ike::lazy_linear<96>{}, ike::relu{},
                                         "fc2"_m = ike::lazy_linear<64>{}, ike::sigmoid{});

// Minus the evidence lower bound (Kingma and Welling, Auto-Encoding Variational Bayes, 2014).
constexpr auto vae = ike::graph([](auto x) {  // [N, 64]
  auto h = ike::relu{}("encoder"_m(ike::lazy_linear<96>{}, x));
  auto [mu, logvar] = ike::chunk<2, 1>("posterior"_m(ike::lazy_linear<2 * latent>{}, h));
  auto z = mu + ike::exp(0.5 * logvar) * "noise"_m(ike::normal_like{}, mu);
  auto error = ike::sum<1>(ike::square("decoder"_m(decoder, z) - x)) / 0.08;  // deviation 0.2
  auto divergence = 0.5 * ike::sum<1>(ike::exp(logvar) + ike::square(mu) - 1 - logvar);
  return ike::mean(error + divergence);
});

int main(int argc, char** argv) {
  const auto table = ike::read_csv<float>("examples/data/digits.csv");
  ike::tensor pixels = ike::columns(table, 0, 64);
  for (float& p : pixels) p /= 16;
  auto model = ike::initialize<float, shape{ike::dynamic, 64}>(vae, ike::seed{1});
  ike::adam optimizer{model, {.lr = 2e-3f}};
  std::vector<double> losses;
  for (int epoch = 0; epoch < 40; ++epoch) {
    double sum = 0, batches = 0;
    for (ike::dim_t i = 0; i + 64 <= pixels.extent(0); i += 64) {
      sum += static_cast<double>(model(ike::slice(pixels, i, i + 64))[0]);
      ++batches;
      model.zero_grad();
      model.backward(ike::ones<float, shape{}>());
      optimizer.step();
    }
    losses.push_back(sum / batches);
  }
  std::printf("loss %.0f, then %.0f\n", losses.front(), losses.back());
  const auto z = ike::normal<float, shape{36, latent}>(ike::seed{3});
  model.eval();
  auto draw = model.part<"decoder">();
  ike::plot figure;
  figure.curves({.title = "loss"}, {{"minus evidence lower bound", losses}});
  figure.images("drawn", ike::reshape<shape{36, 1, 8, 8}>(draw(z)));
  if (argc > 1) figure.save(argv[1]);
  return losses.back() < 0.5 * losses.front() ? 0 : 1;
}
