#include "ikebana/train/fit.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/io/data_loader.hpp"
#include "ikebana/io/dataset.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<1>{});

struct task {
  ike::tensor_dataset<ike::tensor<float, shape{dynamic, 3}>, ike::tensor<float, shape{dynamic, 1}>>
      data = make(20, 1),
      other = make(10, 2);
  ike::model_of<net, float, shape{dynamic, 3}> model;
  ike::data_loader<decltype(data)> loader{data, {.batch = 8}}, validation{other, {.batch = 8}};

  task() : model(ike::initialize<float, shape{dynamic, 3}>(net, ike::seed{1})) {}

  static decltype(data) make(ike::dim_t n, std::uint64_t key) {
    auto x = ike::uniform<float, shape{dynamic, 3}>(ike::seed{key}, n);
    ike::tensor<float, shape{dynamic, 1}> t(shape{n, 1});
    for (ike::dim_t i = 0; i < n; ++i) t[i] = x(i, 0) - 2 * x(i, 1) + 0.5f;
    return {std::move(x), std::move(t)};
  }
};

}  // namespace

TEST_CASE("fit runs the loop that one would write") {
  task a, b;
  ike::sgd one{a.model, {.lr = 0.1}}, two{b.model, {.lr = 0.1}};
  const auto history = ike::fit(a.model, a.loader, ike::mse_loss{}, one, {.epochs = 3});
  std::vector<double> losses;
  for (int epoch = 0; epoch < 3; ++epoch) {
    double sum = 0;
    for (auto [x, t] : b.loader)
      sum += static_cast<double>(b.model.train_step(x, t, ike::mse_loss{}, two)) *
             static_cast<double>(x.extent(0));
    losses.push_back(sum / 20);
  }
  REQUIRE(history.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(history[i].epoch == static_cast<int>(i) + 1);
    CHECK(history[i].loss == losses[i]);
    CHECK(std::isnan(history[i].validation_loss));
  }
  CHECK(std::ranges::equal(a.model.parameters(), b.model.parameters()));
}

TEST_CASE("evaluate is the mean over samples, in evaluation, and changes nothing") {
  task a;
  constexpr auto dropping =
      ike::sequential("drop"_m = ike::dropout{.p = 0.5}, "fc"_m = ike::lazy_linear<1>{});
  auto m = ike::initialize<float, shape{dynamic, 3}>(dropping, ike::seed{1});
  const double loss = ike::evaluate(m, a.loader, ike::mse_loss{});
  CHECK(loss == ike::evaluate(m, a.loader, ike::mse_loss{}));
  CHECK(m.is_training());
  m.eval();
  const double whole = static_cast<double>(ike::mse_loss{}(m(a.data.features()), a.data.targets()));
  CHECK(loss == doctest::Approx(whole).epsilon(1e-6));
  ike::evaluate(m, a.loader, ike::mse_loss{});
  CHECK_FALSE(m.is_training());
}

TEST_CASE("fit ends early, and restores the best parameters") {
  task a;
  ike::sgd optimizer{a.model, {.lr = 0.1}};
  std::vector<float> after_best;
  double best = 1e30;
  // The learning rate becomes so large that the loss grows.
  const auto history = ike::fit(a.model, a.loader, ike::mse_loss{}, optimizer,
                                {.epochs = 50,
                                 .patience = 2,
                                 .restore_best = true,
                                 .callback =
                                     [&](const ike::epoch_result& r) {
                                       if (r.validation_loss < best) {
                                         best = r.validation_loss;
                                         const auto p = a.model.parameters();
                                         after_best.assign(p.begin(), p.end());
                                       }
                                       if (r.epoch == 5) optimizer.options().lr = 5;
                                       return true;
                                     }},
                                a.validation);
  CHECK(history.size() == 7);
  CHECK(history[4].validation_loss == best);
  CHECK(std::ranges::equal(a.model.parameters(), after_best));
}

TEST_CASE("fit ends when its callback says so, and prints a line for each epoch") {
  task a;
  ike::sgd optimizer{a.model, {.lr = 0.1}};
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  const auto history =
      ike::fit(a.model, a.loader, ike::mse_loss{}, optimizer,
               {.epochs = 9,
                .log = file,
                .callback = [](const ike::epoch_result& r) { return r.epoch < 2; }},
               a.validation);
  CHECK(history.size() == 2);
  std::rewind(file);
  std::string text(200, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  CHECK(text.starts_with("epoch 1/9  loss "));
  CHECK(text.find("  validation ") != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
}
