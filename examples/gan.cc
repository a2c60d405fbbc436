// A generative adversarial network (Goodfellow et al., 2014): one model makes digits of random
// numbers, another tells them from real ones. Plots to the file that the command line names.
#include <cstdio>
#include <vector>

#include "ikebana/ikebana.hpp"
#include "ikebana/io/csv.hpp"
#include "ikebana/nn.hpp"
#include "ikebana/train/plot.hpp"

namespace ike = ikebana;
using ike::shape;
constexpr ike::dim_t latent = 16, batch = 64;

constexpr auto generator = ike::sequential(
    ike::lazy_linear<128>{}, ike::lazy_batch_norm1d<>{}, ike::relu{}, ike::lazy_linear<128>{},
    ike::lazy_batch_norm1d<>{}, ike::relu{}, ike::lazy_linear<64>{}, ike::sigmoid{});
constexpr auto discriminator = ike::sequential(
    ike::lazy_linear<128>{}, ike::leaky_relu{0.2}, ike::dropout{0.3}, ike::lazy_linear<64>{},
    ike::leaky_relu{0.2}, ike::dropout{0.3}, ike::lazy_linear<1>{});

int main(int argc, char** argv) {
  ike::tensor pixels = ike::columns(ike::read_csv<float>("examples/data/digits.csv"), 0, 64);
  for (float& p : pixels) p /= 16;
  auto make = ike::initialize<float, shape{ike::dynamic, latent}>(generator, ike::seed{1});
  auto judge = ike::initialize<float, shape{ike::dynamic, 64}>(discriminator, ike::seed{2});
  ike::adam of_make{make, {.lr = 1e-3f, .betas = {0.5f, 0.999f}}};
  ike::adam of_judge{judge, {.lr = 1e-3f, .betas = {0.5f, 0.999f}}};
  const auto real = ike::ones<float, shape{batch, 1}>(),
             fake = ike::zeros<float, shape{batch, 1}>();
  ike::tensor<float, shape{batch, 1}> slope;
  ike::tensor<float, shape{batch, 64}> slope_of_digits;
  auto noise = [drawn = 3u]() mutable {
    return ike::normal<float, shape{batch, latent}>(ike::seed{drawn++});
  };
  constexpr ike::bce_with_logits loss;
  std::vector<double> made, told;  // losses
  for (int epoch = 0; epoch < 40; ++epoch)
    for (ike::dim_t i = 0; i + batch <= pixels.extent(0); i += batch) {
      // The discriminator learns from real digits and from made ones.
      judge.zero_grad();
      const float of_real = judge.loss_backward(ike::slice(pixels, i, i + batch), real, loss);
      told.push_back(of_real + judge.loss_backward(make(noise()), fake, loss));
      of_judge.step();
      // The generator follows the gradient that the discriminator has by its input.
      made.push_back(loss.backward(judge(make(noise())), real, slope.data()));
      judge.backward(slope, slope_of_digits);
      make.zero_grad();
      make.backward(slope_of_digits);
      of_make.step();
    }
  ike::plot figure;
  figure.curves({.title = "losses"}, {{"generator", made}, {"discriminator", told}});
  figure.images("made digits", ike::reshape<shape{batch, 1, 8, 8}>(make(noise())));
  if (argc > 1) figure.save(argv[1]);
  const auto means = ike::column_statistics(make(noise())).mean;
  const float error = ike::mse_loss{}(means, ike::column_statistics(pixels).mean);
  std::printf("mean squared error of the pixels' means %.4f\n", error);
  return error < 0.01f ? 0 : 1;
}
