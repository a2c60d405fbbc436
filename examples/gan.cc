// A generative adversarial network (Goodfellow et al., Generative Adversarial Nets, 2014): two
// models with an optimizer each. One makes digits of random numbers, the other tells them from real
// ones. Digits are drawn in the file that is named on the command line.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "ikebana/ikebana.hpp"
#include "ikebana/io/csv.hpp"
#include "ikebana/nn.hpp"
#include "ikebana/train/plot.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

constexpr ike::dim_t latent = 16, batch = 64;

constexpr auto generator = ike::sequential(
    "fc1"_m = ike::lazy_linear<128>{}, "norm1"_m = ike::lazy_batch_norm1d<>{}, ike::relu{},
    "fc2"_m = ike::lazy_linear<128>{}, "norm2"_m = ike::lazy_batch_norm1d<>{}, ike::relu{},
    "fc3"_m = ike::lazy_linear<64>{}, ike::sigmoid{});
constexpr auto discriminator = ike::sequential(
    "fc1"_m = ike::lazy_linear<128>{}, ike::leaky_relu{0.2}, "drop1"_m = ike::dropout{0.3},
    "fc2"_m = ike::lazy_linear<64>{}, ike::leaky_relu{0.2}, "drop2"_m = ike::dropout{0.3},
    "fc3"_m = ike::lazy_linear<1>{});

/// The mean distance of rows of `of` to the nearest row of `to`.
double distance(const auto& of, const auto& to) {
  double sum = 0;
  for (ike::dim_t i = 0; i < of.extent(0); ++i) {
    float nearest = 1e9f;
    for (ike::dim_t k = 0; k < to.extent(0); ++k) {
      float d = 0;
      for (ike::dim_t p = 0; p < 64; ++p) d += (of(i, p) - to(k, p)) * (of(i, p) - to(k, p));
      nearest = std::min(nearest, d);
    }
    sum += static_cast<double>(nearest);
  }
  return sum / static_cast<double>(of.extent(0));
}

int main(int argc, char** argv) {
  const auto table = ike::read_csv<float>("examples/data/digits.csv");
  ike::tensor pixels = ike::columns(table, 0, 64);
  for (float& p : pixels) p /= 16;

  auto make = ike::initialize<float, shape{dynamic, latent}>(generator, ike::seed{1});
  auto judge = ike::initialize<float, shape{dynamic, 64}>(discriminator, ike::seed{2});
  ike::adam of_make{make, {.lr = 1e-3f, .betas = {0.5f, 0.999f}}};
  ike::adam of_judge{judge, {.lr = 1e-3f, .betas = {0.5f, 0.999f}}};
  const auto real = ike::ones<float, shape{batch, 1}>(),
             fake = ike::zeros<float, shape{batch, 1}>();
  ike::tensor<float, shape{batch, 1}> slope;
  ike::tensor<float, shape{batch, 64}> slope_of_digits;

  std::uint64_t drawn = 0;
  const auto draw = [&] {
    ike::tensor<float, shape{batch, latent}> z;
    ike::fill_normal(ike::random_stream{ike::seed{3}, drawn++}, 0, 1, z.data(), z.size());
    return z;
  };
  constexpr ike::bce_with_logits loss;
  const ike::tensor untrained{make(draw())};
  std::vector<double> of_made, of_told;  // losses of the last step of each epoch
  for (int epoch = 0; epoch < 40; ++epoch) {
    float made = 0, told = 0;
    for (ike::dim_t i = 0; i + batch <= pixels.extent(0); i += batch) {
      // The discriminator learns from real digits and from made ones.
      judge.zero_grad();
      told = judge.loss_backward(ike::slice(pixels, i, i + batch), real, loss);
      told += judge.loss_backward(make(draw()), fake, loss);
      of_judge.step();
      // The generator follows the gradient that the discriminator has by its input.
      made = loss.backward(judge(make(draw())), real, slope.data());
      judge.backward(slope, slope_of_digits);
      make.zero_grad();
      make.backward(slope_of_digits);
      of_make.step();
    }
    of_made.push_back(static_cast<double>(made));
    of_told.push_back(static_cast<double>(told / 2));
  }
  const auto digits = make(draw());
  const double before = distance(untrained, pixels), after = distance(digits, pixels);
  std::printf("distance to the nearest real digit: %.1f untrained, %.1f trained\n", before, after);
  ike::plot figure;
  figure.curves({.title = "loss"}, {{"generator", of_made}, {"discriminator", of_told}});
  figure.images("made digits", ike::reshape<shape{batch, 1, 8, 8}>(digits));
  if (argc > 1) figure.save(argv[1]);
  return after < 0.4 * before ? 0 : 1;
}
