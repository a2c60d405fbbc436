// A variational autoencoder of digits as one formula, loss included. It draws new digits.

#include <cstdio>

#include "ikebana/ikebana.hpp"
#include "ikebana/io/csv.hpp"
#include "ikebana/ops.hpp"

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

int main() {
  const auto table = ike::read_csv<float>("examples/data/digits.csv");
  ike::tensor pixels = ike::columns(table, 0, 64);
  for (float& p : pixels) p /= 16;
  auto model = ike::initialize<float, shape{ike::dynamic, 64}>(vae, ike::seed{1});
  ike::adam optimizer{model, {.lr = 2e-3f}};
  float first = 0, last = 0;
  for (int epoch = 0; epoch < 40; ++epoch) {
    last = 0;
    for (ike::dim_t i = 0; i + 64 <= pixels.extent(0); i += 64) {
      last += model(ike::slice(pixels, i, i + 64))[0];
      model.zero_grad();
      model.backward(ike::ones<float, shape{}>());
      optimizer.step();
    }
    if (epoch == 0) first = last;
  }
  std::printf("loss %.0f, then %.0f\n", static_cast<double>(first), static_cast<double>(last));
  ike::tensor<float, shape{6, latent}> z;
  ike::fill_normal(ike::random_stream{ike::seed{3}, 0}, 0, 1, z.data(), z.size());
  model.eval();
  auto draw = model.part<"decoder">();
  const auto digits = draw(z);
  for (int i = 0; i < 6 * 64; ++i)  // row i / 48 of digit i / 8 % 6
    std::printf("%c%s",
                " .:-=+*#%@"[static_cast<int>(9.9f * digits(i / 8 % 6, i / 48 * 8 + i % 8))],
                i % 48 == 47 ? "\n"
                : i % 8 == 7 ? "   "
                             : "");
  return last < 0.5f * first ? 0 : 1;
}
