// Handwritten digits: a lazy convolutional network, resolved by the compiler, trained on replicas,
// saved and loaded.

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <numbers>
#include <string>
#include <vector>

#include "ikebana/ikebana.hpp"
#include "ikebana/io.hpp"
#include "ikebana/io/safetensors.hpp"
#include "ikebana/replicate.hpp"
#include "ikebana/train/plot.hpp"

namespace ike = ikebana;
using namespace ike::literals;

// Input dimensions are left out: channels and features are inferred from the input.
constexpr auto network = ike::sequential(
    "conv1"_m = ike::lazy_conv2d<32, ike::kernel<3>, ike::padding<1>, ike::bias<false>>{},
    "bn1"_m = ike::lazy_batch_norm2d<>{}, "relu1"_m = ike::relu{},
    "conv2"_m = ike::lazy_conv2d<32, ike::kernel<3>, ike::padding<1>, ike::bias<false>>{},
    "bn2"_m = ike::lazy_batch_norm2d<>{}, "relu2"_m = ike::relu{},
    "pool1"_m = ike::max_pool2d<ike::kernel<2>>{},
    "conv3"_m = ike::lazy_conv2d<64, ike::kernel<3>, ike::padding<1>, ike::bias<false>>{},
    "bn3"_m = ike::lazy_batch_norm2d<>{}, "relu3"_m = ike::relu{},
    "pool2"_m = ike::max_pool2d<ike::kernel<2>>{}, "flatten"_m = ike::flatten{},
    "drop1"_m = ike::dropout{.p = 0.25}, "fc1"_m = ike::lazy_linear<64>{}, "relu4"_m = ike::relu{},
    "drop2"_m = ike::dropout{.p = 0.25}, "fc2"_m = ike::lazy_linear<10>{});

struct settings {
  std::string csv = "examples/data/digits.csv";
  std::string mnist;
  std::string load;
  std::string output = ".";
  int replicas = 2;
  int epochs = 0;
  int batch = 16;
  double lr = 2e-3;
  double required = 0;
  unsigned seed = 1;
};

struct history {
  std::vector<double> train_loss, test_loss, train_accuracy, test_accuracy;
};

struct evaluation {
  ike::confusion_matrix confusion{10};
  double loss = 0;
};

template <class Model, class Dataset>
evaluation evaluate(Model& model, const Dataset& data) {
  evaluation result;
  const bool was_training = model.is_training();
  model.eval();
  double sum = 0;
  for (auto [x, t] : ike::data_loader(data, {.batch = 90})) {
    const auto scores = model(x);
    sum += static_cast<double>(ike::cross_entropy{.reduction = ike::reduction::sum}(scores, t));
    result.confusion.add(scores, t);
  }
  model.train(was_training);
  result.loss = sum / static_cast<double>(data.size());
  return result;
}

void report(const evaluation& e) {
  std::printf("\ntest accuracy %.2f %% (%lld of %lld), loss %.9g\n\n%s\n",
              100 * e.confusion.accuracy(), static_cast<long long>(e.confusion.correct()),
              static_cast<long long>(e.confusion.total()), e.loss,
              ike::to_string(e.confusion).c_str());
}

template <ike::shape Image, class Dataset>
int run(const settings& how, const Dataset& train, const Dataset& test) {
  constexpr ike::shape input{ike::dynamic, Image[0], Image[1], Image[2]};
  std::cout << "The network as written, its input dimensions left out:\n\n" << network << "\n\n";
  auto first = ike::initialize<float, input>(network, ike::seed{how.seed});
  std::cout << "and as the compiler resolved it:\n\n"
            << first.module() << "\n\n"
            << ike::summary(first) << std::endl;

  if (!how.load.empty()) {
    ike::load_state_dict(first, ike::load(how.load));
    std::printf("loaded %s\n", how.load.c_str());
    const evaluation e = evaluate(first, test);
    report(e);
    return e.confusion.accuracy() >= how.required ? 0 : 1;
  }

  history log;
  ike::plot figure;
  const std::string file = how.output + "/digits.safetensors";
  double reached = 0;
  ike::launch(ike::threads{how.replicas}, [&](ike::process_group auto& group) {
    const bool speaks = group.rank() == 0;
    auto model = ike::replicate(first.clone(), group);
    auto optimizer = ike::adamw{model, {.lr = how.lr}};
    ike::data_loader loader(train,
                            {.batch = how.batch, .shuffle = ike::seed{how.seed}, .shard = group});
    for (int epoch = 1; epoch <= how.epochs; ++epoch) {
      char label[32];
      std::snprintf(label, sizeof label, "epoch %2d/%d", epoch, how.epochs);
      ike::progress_bar bar(loader.samples() * group.size(),
                            {.label = label, .to = stdout, .enabled = speaks});
      // The learning rate decreases to 0 along half a cosine.
      const double done = (epoch - 1.0) / how.epochs;
      optimizer.options().lr = how.lr * 0.5 * (1 + std::cos(std::numbers::pi * done));
      std::array<double, 3> sums{};  // Loss, correct, samples.
      for (auto [x, t] : loader) {
        const float loss = model.train_step(x, t, ike::cross_entropy{}, optimizer);
        const auto n = static_cast<double>(x.extent(0));
        sums[0] += static_cast<double>(loss) * n;
        sums[1] += ike::accuracy(model.output(), t) * n;
        sums[2] += n;
        bar.set("loss", sums[0] / sums[2]);
        bar.set("accuracy", sums[1] / sums[2]);
        bar.advance(x.extent(0) * group.size());
      }
      group.all_reduce(std::span<double>{sums}, ike::reduce_op::sum);
      if (speaks) {
        const evaluation e = evaluate(model, test);
        log.train_loss.push_back(sums[0] / sums[2]);
        log.train_accuracy.push_back(sums[1] / sums[2]);
        log.test_loss.push_back(e.loss);
        log.test_accuracy.push_back(e.confusion.accuracy());
        bar.set("loss", log.train_loss.back());
        bar.set("accuracy", log.train_accuracy.back());
        bar.set("test accuracy", e.confusion.accuracy());
      }
      bar.finish();
    }
    if (speaks) {
      ike::save(ike::get_state_dict(model), file);
      const evaluation e = evaluate(model, test);
      report(e);
      reached = e.confusion.accuracy();
      figure.confusion("test set", e.confusion);
    }
  });
  figure.curves({.title = "loss", .logarithmic_y = true},
                {{"train", log.train_loss}, {"test", log.test_loss}});
  figure.curves({.title = "accuracy"},
                {{"train", log.train_accuracy}, {"test", log.test_accuracy}});
  figure.save(how.output + "/training.svg");
  std::printf("wrote %s and %s/training.svg\n", file.c_str(), how.output.c_str());
  if (reached < how.required)
    std::printf("the accuracy is below the %.2f %% asked for\n", 100 * how.required);
  return reached >= how.required ? 0 : 1;
}

int main(int argc, char** argv) {
  settings how;
  // `bazel run` starts programs in another directory; results belong in the user's.
  if (const char* directory = std::getenv("BUILD_WORKING_DIRECTORY")) how.output = directory;
  CLI::App app{
      "Trains a convolutional network on handwritten digits, or evaluates one that was saved."};
  app.add_option("--csv", how.csv,
                 "digits of 8x8 pixels in 0..16 as CSV, the class in the last column")
      ->capture_default_str();
  app.add_option("--mnist", how.mnist,
                 "train on MNIST instead: the directory of its four IDX files, unpacked "
                 "(train-images-idx3-ubyte, ...)");
  app.add_option("--load", how.load, "do not train: evaluate the network saved in this file");
  app.add_option("--output", how.output, "the directory for digits.safetensors and training.svg")
      ->capture_default_str();
  app.add_option("--replicas", how.replicas, "threads that train together")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--epochs", how.epochs,
                 "passes over the training data (default: 20, with MNIST 3)");
  app.add_option("--batch", how.batch, "samples per step and replica")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  app.add_option("--lr", how.lr, "the first learning rate of AdamW")->capture_default_str();
  app.add_option("--seed", how.seed, "of weights, batches and dropout")->capture_default_str();
  app.add_option("--require", how.required, "fail if the test accuracy, 0..1, stays below this");
  CLI11_PARSE(app, argc, argv);
  const auto from_user = [&](std::string& path) {
    const char* directory = std::getenv("BUILD_WORKING_DIRECTORY");
    if (directory != nullptr && !path.empty() && path[0] != '/')
      path = std::string{directory} + "/" + path;
  };
  from_user(how.load);
  from_user(how.mnist);
  try {
    if (!how.mnist.empty()) {
      if (how.epochs == 0) how.epochs = 3;
      using ike::shape;
      const auto read = [&](const std::string& part) {
        auto images = ike::read_idx_samples<float, shape{1, 28, 28}>(how.mnist + "/" + part +
                                                                     "-images-idx3-ubyte");
        for (float& pixel : images) pixel /= 255;
        return ike::tensor_dataset(
            std::move(images),
            ike::read_idx<std::int64_t, 1>(how.mnist + "/" + part + "-labels-idx1-ubyte"));
      };
      return run<shape{1, 28, 28}>(how, read("train"), read("t10k"));
    }
    if (how.epochs == 0) how.epochs = 20;
    const auto table = ike::read_csv<float>(how.csv);
    auto images = ike::columns<ike::shape{1, 8, 8}>(table);
    for (float& pixel : images) pixel /= 16;
    const ike::tensor_dataset digits(std::move(images), ike::labels(table, 64));
    const auto [train, test] = ike::random_split(digits, 1437, ike::seed{1});
    return run<ike::shape{1, 8, 8}>(how, train, test);
  } catch (const ike::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
