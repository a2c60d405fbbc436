// Regression on a CSV file whose number of columns is known only at run time, with a custom module.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <string>
#include <utility>

#include "ikebana/ikebana.hpp"
#include "ikebana/io.hpp"
#include "ikebana/nn/standard_scaler.hpp"
#include "ikebana/ops.hpp"

namespace ike = ikebana;
using namespace ike::literals;

// A residual block as a function of symbolic values: x is used twice, its gradients are summed.
template <ike::dim_t Width>
constexpr auto block = ike::graph([](auto x) {
  auto h = ike::gelu{}("fc1"_m(ike::lazy_linear<Width>{}, x));
  return "fc2"_m(ike::lazy_linear<Width>{}, h) +
         "skip"_m(ike::lazy_linear<Width, ike::bias<false>>{}, x);
});

constexpr auto network =
    ike::sequential("input"_m = ike::lazy_standard_scaler{}, "block1"_m = block<64>, ike::gelu{},
                    "block2"_m = block<32>, ike::gelu{}, "out"_m = ike::lazy_linear<1>{});

// A loss is a function too, of the outputs and the targets.
constexpr auto squared_error =
    ike::loss([](auto y, auto target) { return ike::mean(ike::square(y - target)); });

int main(int argc, char** argv) {
  std::string csv = "examples/data/friedman.csv";
  int epochs = 60;
  double required = 0;
  CLI::App app{"Learns the last column of a CSV file from the others."};
  app.add_option("--csv", csv, "numbers with a header line; the target is the last column")
      ->capture_default_str();
  app.add_option("--epochs", epochs, "passes over the training rows")->capture_default_str();
  app.add_option("--require", required, "fail if R2 on the test rows stays below this");
  CLI11_PARSE(app, argc, argv);
  try {
    const auto table = ike::read_csv<float>(csv, {.header = true});
    const ike::dim_t features = table.values.extent(1) - 1;
    const ike::tensor_dataset rows(ike::columns(table, 0, features),
                                   ike::columns(table, features, features + 1));
    const auto raw = ike::random_split(rows, rows.size() * 4 / 5, ike::seed{1});
    const auto of_targets = ike::column_statistics(raw.train.targets());
    const auto prepare = [&](const auto& part) {
      ike::tensor x = part.features(), y = part.targets();
      for (float& value : y) value = (value - of_targets.mean[0]) / of_targets.deviation[0];
      return ike::tensor_dataset(std::move(x), std::move(y));
    };
    const auto train = prepare(raw.train), test = prepare(raw.test);

    // The number of columns is bound here, and every later input is checked against it.
    auto model = ike::initialize<float, ike::shape{ike::dynamic, ike::dynamic}>(
        network, ike::seed{1}, ike::shape{1, features});
    // Scales each column to mean 0 and deviation 1; the numbers are part of the model's state.
    const auto of_features = ike::column_statistics(raw.train.features());
    model.buffer("input.mean"_s) = of_features.mean;
    model.buffer("input.deviation"_s) = of_features.deviation;
    std::cout << model.module() << "\n\n" << ike::summary(model) << std::endl;

    auto optimizer = ike::adamw{model, {.lr = 3e-3, .weight_decay = 1e-2}};
    ike::data_loader loader(train, {.batch = 32, .shuffle = ike::seed{2}});
    for (int epoch = 1; epoch <= epochs; ++epoch) {
      optimizer.options().lr = 3e-3 * (1 - (epoch - 1.0) / epochs);
      ike::running_mean loss;
      for (auto [x, t] : loader)
        loss.add(static_cast<double>(model.train_step(x, t, squared_error, optimizer)),
                 static_cast<double>(x.extent(0)));
      if (epoch % 10 == 0) std::printf("epoch %3d  mean squared error %.4f\n", epoch, loss.value());
    }

    model.eval();
    const auto predicted = model(test.features());
    const double r2 = ike::r2_score(predicted, test.targets());
    std::printf("on %lld rows never seen: R2 %.4f\n", static_cast<long long>(test.size()), r2);
    return r2 >= required ? 0 : 1;
  } catch (const ike::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
