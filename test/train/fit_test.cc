#include "ikebana/train/fit.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/io/data_loader.hpp"
#include "ikebana/io/dataset.hpp"
#include "ikebana/io/sample_loader.hpp"
#include "ikebana/io/text_table.hpp"
#include "ikebana/io/transform.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/train/find_lr.hpp"
#include "ikebana/train/log.hpp"
#include "ikebana/train/plot.hpp"
#include "ikebana/train/training_state.hpp"
#include "test/support/scratch.hpp"

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

TEST_CASE("fit refuses to end early without a validation, before anything changes") {
  task a;
  ike::sgd optimizer{a.model, {.lr = 0.1}};
  const std::vector<float> before(a.model.parameters().begin(), a.model.parameters().end());
  CHECK_THROWS_WITH_AS(
      ike::fit(a.model, a.loader, ike::mse_loss{}, optimizer,
               {.epochs = 3, .early_stopping = {.patience = 1}}),
      "fit: early_stopping needs a validation: .validate, or a loader as last argument",
      ike::error);
  CHECK_THROWS_AS(ike::fit(a.model, a.loader, ike::mse_loss{}, optimizer,
                           {.epochs = 3, .early_stopping = {.restore_best = true}}),
                  ike::error);
  CHECK(std::ranges::equal(a.model.parameters(), before));
}

TEST_CASE("fit ends early, and restores the best parameters") {
  task a;
  ike::sgd optimizer{a.model, {.lr = 0.1}};
  std::vector<float> after_best;
  double best = 1e30;
  // The learning rate becomes so large that the loss grows.
  const auto history = ike::fit(a.model, a.loader, ike::mse_loss{}, optimizer,
                                {.epochs = 50,
                                 .early_stopping = {.patience = 2, .restore_best = true},
                                 .callbacks = {[&](const ike::epoch_result& r) {
                                   if (r.validation_loss < best) {
                                     best = r.validation_loss;
                                     const auto p = a.model.parameters();
                                     after_best.assign(p.begin(), p.end());
                                   }
                                   if (r.epoch == 5) optimizer.options().lr = 5;
                                 }}},
                                a.validation);
  CHECK(history.size() == 7);
  CHECK(history[4].validation_loss == best);
  CHECK(std::ranges::equal(a.model.parameters(), after_best));
}

TEST_CASE("fit refuses a loader that has no batches") {
  task a;
  ike::sgd optimizer{a.model, {.lr = 0.1}};
  ike::data_loader none{a.data, {.batch = 32, .drop_last = true}};
  CHECK_THROWS_WITH_AS(
      ike::fit(a.model, none, ike::mse_loss{}, optimizer),
      "fit: the loader has no samples in an epoch (fewer than a batch, and drop_last?)",
      ike::error);
}

TEST_CASE("fit ends early if the validation is not a number, from the first epoch on") {
  task a;
  ike::sgd optimizer{a.model, {.lr = 0.1}};
  const auto history =
      ike::fit(a.model, a.loader, ike::mse_loss{}, optimizer,
               {.epochs = 50,
                .validate = [] { return std::numeric_limits<double>::quiet_NaN(); },
                .early_stopping = {.patience = 2}});
  CHECK(history.size() == 2);
}

TEST_CASE("fit ends when its callback says so, and prints a line for each epoch") {
  task a;
  ike::sgd optimizer{a.model, {.lr = 0.1}};
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  const auto history =
      ike::fit(a.model, a.loader, ike::mse_loss{}, optimizer,
               {.epochs = 9,
                .callbacks = {[](const ike::epoch_result& r) { return r.epoch < 2; }},
                .log = file},
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

TEST_CASE("fit calls back after each step, and takes any metric") {
  task a;
  ike::sgd optimizer{a.model, {.lr = 0.1}};
  std::vector<std::int64_t> steps;
  double metric = 0;
  const auto history = ike::fit(a.model, a.loader, ike::mse_loss{}, optimizer,
                                {.epochs = 9,
                                 .validate = [&] { return metric < 3 ? metric += 1 : metric; },
                                 .early_stopping = {.patience = 2, .mode = ike::metric_mode::max},
                                 .callbacks = {[&](const ike::step_result& r) {
                                   CHECK(r.epoch == (r.step - 1) / 3 + 1);
                                   CHECK(r.loss > 0);
                                   steps.push_back(r.step);
                                 }}});
  CHECK(history.size() == 5);  // 3 better ones, and 2 that are not.
  CHECK(history[4].validation_loss == 3);
  CHECK(steps.size() == 15);
  const auto ended =
      ike::fit(a.model, a.loader, ike::mse_loss{}, optimizer,
               {.callbacks = {[](const ike::step_result& r) { return r.step < 4; }}});
  CHECK(ended.size() == 2);
}

TEST_CASE("fit trains on batches of several inputs") {
  constexpr auto sum = ike::graph<"a", "b">([](auto a, auto b) { return "fc"_m(net, a + b); });
  task data;
  const auto pairs =
      ike::mapped(data.data, [](const auto& x, const auto& t) { return std::tuple(x, x, t); });
  ike::data_loader loader{pairs, {.batch = 8}};
  auto model = ike::initialize<float, shape{dynamic, 3}, shape{dynamic, 3}>(sum, ike::seed{1});
  ike::sgd optimizer{model, {.lr = 0.05}};
  const auto history = ike::fit(model, loader, ike::mse_loss{}, optimizer, {.epochs = 30});
  CHECK(history.back().loss < 0.1 * history.front().loss);
  CHECK(ike::evaluate(model, loader, ike::mse_loss{}) < 0.1 * history.front().loss);
}

TEST_CASE("find_lr tries rates and leaves everything as it was") {
  task a;
  ike::sgd optimizer{a.model, {.lr = 0.1, .momentum = 0.9}, ike::group<"fc.bias">{.lr = 0.2}};
  ike::fit(a.model, a.loader, ike::mse_loss{}, optimizer, {.epochs = 1});
  const auto before = ike::get_training_state(a.model, optimizer).clone();
  ike::data_loader whole{a.data, {.batch = 20}};
  const auto curve =
      ike::find_lr(a.model, whole, ike::mse_loss{}, optimizer, {.start = 1e-5, .end = 100});
  CHECK(curve.lr.size() > 50);
  CHECK(curve.lr.size() < 100);  // It diverged.
  CHECK(curve.lr[0] == doctest::Approx(1e-5));
  CHECK(curve.steepest() > 1e-4);
  CHECK(curve.steepest() < 1);
  CHECK(optimizer.options().lr == 0.1);
  CHECK(optimizer.groups()[0].options.lr == 0.2);
  CHECK(whole.position() == ike::loader_position{0, 0});
  const auto after = ike::get_training_state(a.model, optimizer);
  for (const auto& e : before) {
    CAPTURE(e.name);
    CHECK(std::ranges::equal(e.bytes, after.at(e.name).bytes));
  }
  CHECK_THROWS_WITH_AS(ike::lr_curve{}.steepest(),
                       "find_lr: fewer than 3 learning rates were tried: the loss diverged, or the "
                       "loader has no batches",
                       ike::error);
  CHECK_THROWS_WITH_AS(ike::find_lr(a.model, a.loader, ike::mse_loss{}, optimizer, {.start = 0}),
                       "find_lr expects 0 < start < end and at least 3 steps", ike::error);
}

TEST_CASE("logs of fit are files that others read") {
  scratch_directory scratch;
  task a;
  ike::sgd optimizer{a.model, {.lr = 0.1}};
  const auto csv = scratch.path() / "log.csv";
  for (int run = 0; run < 2; ++run) {
    ike::csv_log log{csv};
    ike::tensorboard_log board{scratch.path() / "board"};
    ike::fit(a.model, a.loader, ike::mse_loss{}, optimizer,
             {.epochs = 2, .callbacks = {ike::log_to(log), ike::log_to(board)}}, a.validation);
    CHECK_THROWS_WITH_AS(log.add(1, {{"loss", 1}}),
                         "csv_log: expected the columns step,loss,validation, got step,loss",
                         ike::error);
  }
  const auto table = ike::read_table(csv.string());
  CHECK(table.rows() == 4);
  CHECK(table.numbers<float>("loss")[0] > table.numbers<float>("loss")[3]);
  CHECK(table.numbers<int>("step")[3] == 2);
  const auto missing = scratch.path() / "none" / "log.csv";
  CHECK_THROWS_WITH_AS(ike::csv_log{missing},
                       (missing.string() + ": cannot open: No such file or directory").c_str(),
                       ike::io_error);

  ike::tensorboard_log board{scratch.path() / "numbers"};
  board.add(300, {{"loss/train", 0.5}, {"b", -2}});
  std::ifstream file(board.path(), std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  // Two records: length, its masked CRC-32C, an Event, its masked CRC-32C.
  std::vector<std::string> events;
  const auto number = [&](std::size_t at, int size) {
    std::uint64_t x = 0;
    for (int k = size; k-- > 0;)
      x = x << 8 | static_cast<unsigned char>(text[at + static_cast<std::size_t>(k)]);
    return x;
  };
  const auto sum = [&](std::size_t at, std::size_t n) {
    const auto crc =
        ike::detail::crc32c({reinterpret_cast<const unsigned char*>(text.data()) + at, n});
    return static_cast<std::uint32_t>(((crc >> 15) | (crc << 17)) + 0xa282ead8U);
  };
  for (std::size_t at = 0; at < text.size();) {
    const auto n = static_cast<std::size_t>(number(at, 8));
    CHECK(number(at + 8, 4) == sum(at, 8));
    CHECK(number(at + 12 + n, 4) == sum(at + 12, n));
    events.push_back(text.substr(at + 12, n));
    at += n + 16;
  }
  REQUIRE(events.size() == 2);
  CHECK(events[0].substr(9) ==
        "\x1a\x0d"
        "brain.Event:2");
  // wall_time (9 bytes), step = 300, summary { value { tag, simple_value } .. }.
  CHECK(events[1].substr(9) ==
        std::string("\x10\xac\x02\x2a\x1d\x0a\x11\x0a\x0aloss/train\x15\0\0\0\x3f"
                    "\x0a\x08\x0a\x01"
                    "b\x15\0\0\0\xc0",
                    34));
  const std::string check = "123456789";
  CHECK(ike::detail::crc32c({reinterpret_cast<const unsigned char*>(check.data()), 9}) ==
        0xe3069283U);
}

TEST_CASE("plots are SVG of curves, matrices, weights and images") {
  scratch_directory scratch;
  ike::confusion_matrix matrix{2};
  matrix.add(ike::tensor_view<const float, shape{2, 2}>(std::array{1.F, 0.F, 0.F, 1.F}.data()),
             ike::zeros<std::int64_t, shape{2}>());
  const double none = std::numeric_limits<double>::quiet_NaN();
  ike::plot figure{2};
  figure.curves({.title = "a < b & c", .logarithmic_y = true},
                {{"train", {1, 0.1, none, 0.01}}, {"test", {2, 0, 0.5, 0.25}}});
  figure.confusion("two classes", matrix, {"cat", "dog"});
  figure.weights("kernels", ike::uniform<float, shape{2, 3, 3, 3}>(ike::seed{1}));
  figure.images("images", ike::uniform<float, shape{5, 3, 4, 4}>(ike::seed{1}));
  figure.save(scratch.path() / "a.svg");
  std::ifstream file(scratch.path() / "a.svg");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  CHECK(text == figure.to_svg());
  const auto count = [&](const std::string& what) {
    int n = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  CHECK(text.find("a &lt; b &amp; c") != std::string::npos);
  CHECK(count("<g ") == 4);
  CHECK(count("<image ") == 2);
  CHECK(count("<polyline ") == 2);  // The lines are interrupted.
  CHECK(count("<circle ") == 2);
  CHECK(count(">dog</text>") == 2);
  CHECK(text.find("nan") == std::string::npos);
  CHECK_THROWS_AS(figure.save(scratch.path() / "none" / "a.svg"), ike::io_error);
  CHECK_THROWS_AS(figure.curves({}, {{"a", {1, 2}, {1}}}), ike::error);
  CHECK_THROWS_AS(figure.weights("", ike::zeros<float, shape{2, 2, 2}>()), ike::shape_error);
  CHECK_THROWS_AS(figure.images("", ike::zeros<float, shape{2, 2, 2}>()), ike::shape_error);
  ike::plot empty;
  empty.curves({}, {}).weights("", ike::zeros<float, shape{0}>());
  CHECK(empty.to_svg().find("nan") == std::string::npos);
}
