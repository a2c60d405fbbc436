// ResNet-18: blocks as functions of symbolic values, repeated, with every input dimension left out.
// Trains a narrow version on enlarged digits.

#include "examples/networks/resnet18.hpp"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <numbers>
#include <string>

#include "ikebana/ikebana.hpp"
#include "ikebana/io.hpp"

namespace ike = ikebana;
using ike::dynamic;
using ike::shape;

constexpr shape small_images{dynamic, 1, 32, 32};
// A quarter of the paper's width: enough for digits.
constexpr auto network = resnet::resnet18<10, 16>;

/// Enlarges each pixel of [N, 1, 8, 8] to a square of 4x4.
ike::tensor<float, small_images> enlarge(const ike::tensor<float, shape{dynamic, 1, 8, 8}>& in) {
  ike::tensor<float, small_images> out(shape{in.extent(0), 1, 32, 32});
  for (ike::dim_t n = 0; n < in.extent(0); ++n)
    for (ike::dim_t y = 0; y < 32; ++y)
      for (ike::dim_t x = 0; x < 32; ++x) out(n, 0, y, x) = in(n, 0, y / 4, x / 4) / 16 - 0.5f;
  return out;
}

template <class Model, class Dataset>
double test_accuracy(Model& model, const Dataset& data) {
  model.eval();
  double correct = 0;
  for (auto [x, t] : ike::data_loader(data, {.batch = 60}))
    correct += ike::accuracy(model(x), t) * static_cast<double>(x.extent(0));
  model.train();
  return correct / static_cast<double>(data.size());
}

int main(int argc, char** argv) {
  std::string csv = "examples/data/digits.csv";
  int epochs = 3, batch = 32;
  double lr = 4e-3, required = 0;
  CLI::App app{"Shows ResNet-18 as a network for ImageNet, and trains it on digits."};
  app.add_option("--csv", csv, "digits of 8x8 pixels in 0..16 as CSV, the class in the last column")
      ->capture_default_str();
  app.add_option("--epochs", epochs, "passes over the training data")->capture_default_str();
  app.add_option("--batch", batch, "samples per step")
      ->capture_default_str()
      ->check(CLI::Range(2, 1024));
  app.add_option("--lr", lr, "the highest learning rate of AdamW")->capture_default_str();
  app.add_option("--require", required, "fail if the test accuracy, 0..1, stays below this");
  CLI11_PARSE(app, argc, argv);
  try {
    std::cout << "ResNet-18 for images of 3 x 224 x 224:\n\n"
              << ike::summary(ike::initialize<float, shape{dynamic, 3, 224, 224}>(
                     resnet::resnet18<1000>, ike::seed{1}))
              << "\n";

    const auto table = ike::read_csv<float>(csv);
    const ike::tensor_dataset digits(enlarge(ike::columns<shape{1, 8, 8}>(table)),
                                     ike::labels(table, 64));
    const auto [train, test] = ike::random_split(digits, digits.size() * 4 / 5, ike::seed{1});
    auto model = ike::initialize<float, small_images>(network, ike::seed{1});
    std::cout << "The same, a quarter as wide, for digits:\n\n" << model.module() << "\n\n";

    auto optimizer = ike::adamw{model, {.lr = lr, .weight_decay = 1e-2}};
    ike::data_loader loader(train, {.batch = batch, .shuffle = ike::seed{2}, .drop_last = true});
    const double steps =
        static_cast<double>(epochs) * static_cast<double>(loader.samples() / batch);
    double step = 0, accuracy = 0;
    for (int epoch = 1; epoch <= epochs; ++epoch) {
      char label[32];
      std::snprintf(label, sizeof label, "epoch %d/%d", epoch, epochs);
      ike::progress_bar bar(loader.samples(), {.label = label, .to = stdout});
      double sum = 0, samples = 0;
      for (auto [x, t] : loader) {
        // One cycle: the rate rises in the first quarter of the steps and falls along a cosine in
        // the others.
        const double done = step++ / steps;
        optimizer.options().lr =
            lr * (done < 0.25 ? (done + 0.01) / 0.26
                              : 0.5 * (1 + std::cos(std::numbers::pi * (done - 0.25) / 0.75)));
        const auto n = static_cast<double>(x.extent(0));
        sum += static_cast<double>(model.train_step(x, t, ike::cross_entropy{}, optimizer)) * n;
        samples += n;
        bar.set("loss", sum / samples);
        bar.advance(x.extent(0));
      }
      accuracy = test_accuracy(model, test);
      bar.set("test accuracy", accuracy);
      bar.finish();
    }
    std::printf("test accuracy %.2f %%\n", 100 * accuracy);
    return accuracy >= required ? 0 : 1;
  } catch (const ike::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
