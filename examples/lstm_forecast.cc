// Forecasts a chaotic series with an LSTM: trained on windows, then fed value by value, with its
// state kept from call to call.

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>

#include "examples/networks/forecaster.hpp"
#include "ikebana/ikebana.hpp"
#include "ikebana/io.hpp"

namespace ike = ikebana;
using ike::dynamic;
using ike::shape;

constexpr ike::dim_t hidden = 32, window = 48;
// input_size and in_features are left out.
constexpr auto network = forecaster::network<1, hidden, 1>;
// The same parameters; a call continues where the previous one ended.
constexpr auto streaming = forecaster::network<1, hidden, 1, ike::stateful<1>>;

using series = ike::tensor<float, shape{dynamic}>;
using windows = ike::tensor<float, shape{dynamic, window, 1}>;

/// Windows that start at every `stride`-th of the first `values` values: the inputs, and the same
/// one step later.
auto make_windows(const series& x, ike::dim_t values, ike::dim_t stride) {
  const ike::dim_t n = (values - window - 1) / stride + 1;
  windows in(shape{n, window, 1}), next(shape{n, window, 1});
  for (ike::dim_t i = 0; i < n; ++i)
    for (ike::dim_t t = 0; t < window; ++t) {
      in(i, t, 0) = x[i * stride + t];
      next(i, t, 0) = x[i * stride + t + 1];
    }
  return ike::tensor_dataset(std::move(in), std::move(next));
}

int main(int argc, char** argv) {
  std::string csv = "examples/data/mackey_glass.csv";
  int epochs = 50, ahead = 12;
  double lr = 1e-2, required = 0;
  CLI::App app{"Learns to forecast a series, and does so one value at a time."};
  app.add_option("--csv", csv, "numbers with a header line; the series is the last column")
      ->capture_default_str();
  app.add_option("--epochs", epochs, "passes over the training windows")->capture_default_str();
  app.add_option("--lr", lr, "the first learning rate of Adam")->capture_default_str();
  app.add_option("--ahead", ahead,
                 "values to forecast at the end of the series from the model's own")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  app.add_option("--require", required,
                 "fail if the error is not so many times smaller than that of persistence");
  CLI11_PARSE(app, argc, argv);
  try {
    const auto table = ike::read_csv<float>(csv, {.header = true});
    const ike::dim_t size = table.values.extent(0), column = table.values.extent(1) - 1;
    const ike::dim_t trained = size * 4 / 5, known = size - ahead;
    if (trained <= window || known <= trained) {
      std::fprintf(stderr, "%s: expected more rows, got %lld\n", csv.c_str(),
                   static_cast<long long>(size));
      return 2;
    }
    // Mean 0 and standard deviation 1 over the training values.
    double mean = 0, square = 0;
    for (ike::dim_t i = 0; i < trained; ++i) mean += table.values(i, column);
    mean /= static_cast<double>(trained);
    for (ike::dim_t i = 0; i < trained; ++i) square += std::pow(table.values(i, column) - mean, 2);
    const double deviation = std::sqrt(square / static_cast<double>(trained));
    series x(shape{size});
    for (ike::dim_t i = 0; i < size; ++i)
      x[i] = static_cast<float>((table.values(i, column) - mean) / deviation);

    auto model = ike::initialize<float, shape{dynamic, window, 1}>(network, ike::seed{1});
    std::cout << model.module() << "\n\n" << ike::summary(model) << std::endl;
    const auto data = make_windows(x, trained, 4);
    auto optimizer = ike::adam{model, {.lr = lr}};
    ike::data_loader loader(data, {.batch = 16, .shuffle = ike::seed{2}});
    for (int epoch = 1; epoch <= epochs; ++epoch) {
      optimizer.options().lr = lr * (1 - (epoch - 1.0) / epochs);
      double sum = 0;
      for (auto [in, next] : loader)
        sum += static_cast<double>(model.train_step(in, next, ike::mse_loss{}, optimizer)) *
               static_cast<double>(in.extent(0));
      if (epoch % 10 == 0 || epoch == epochs)
        std::printf("epoch %3d  mean squared error %.6f\n", epoch,
                    sum / static_cast<double>(data.size()));
    }

    // From here on, one value per call: nothing is computed twice, however long the past.
    auto stream = ike::initialize<float, shape{1, 1, 1}>(streaming, ike::seed{1});
    ike::load_state_dict(stream, ike::get_state_dict(model));
    stream.eval();
    double squares = 0, persistence = 0;
    float forecast = 0;
    for (ike::dim_t i = 0; i < known; ++i) {
      if (i >= trained) {
        squares += std::pow(forecast - x[i], 2);
        persistence += std::pow(x[i - 1] - x[i], 2);
      }
      forecast = stream(ike::tensor_view<const float, shape{1, 1, 1}>(&x[i]))[0];
    }
    const auto error = [&](double sum) {
      return deviation * std::sqrt(sum / static_cast<double>(known - trained));
    };
    std::printf(
        "one step ahead on %lld values never seen, root mean squared error:\n"
        "  persistence %.5f\n  LSTM        %.5f\n",
        static_cast<long long>(known - trained), error(persistence), error(squares));

    std::printf("the last %d values, forecast from the model's own forecasts:\n", ahead);
    for (ike::dim_t i = known; i < size; ++i) {
      std::printf("  %.4f  (was %.4f)\n", mean + deviation * static_cast<double>(forecast),
                  static_cast<double>(table.values(i, column)));
      const float last = forecast;
      forecast = stream(ike::tensor_view<const float, shape{1, 1, 1}>(&last))[0];
    }
    return persistence >= required * required * squares ? 0 : 1;
  } catch (const ike::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
