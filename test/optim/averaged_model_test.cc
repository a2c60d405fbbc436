#include "ikebana/optim/averaged_model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "ikebana/compose/frozen.hpp"
#include "ikebana/ikebana.hpp"
#include "ikebana/optim/update_bn.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;

namespace {

constexpr auto net =
    ike::sequential("fc"_m = ike::lazy_linear<5>{}, "norm"_m = ike::lazy_batch_norm1d<>{});
constexpr ike::shape rows{8, 3};

template <class T, class Average>
void check(const ike::averaging_options& options, double tolerance, Average average) {
  auto model = ike::initialize<T, rows>(net, ike::seed{1});
  ike::sgd optimizer{model, {.lr = 0.1}};
  const auto x = ike::uniform<T, rows>(ike::seed{2});
  const auto t = ike::uniform<T, ike::shape{8, 5}>(ike::seed{3});
  ike::averaged_model averaged{model, options};
  std::vector<double> expected(model.parameters().size());
  long allocations = 0;
  for (int n = 0; n < 6; ++n) {
    model.train_step(x, t, ike::mse_loss{}, optimizer);
    const long before = allocation_count_here;
    averaged.update_parameters(model);
    allocations += allocation_count_here - before;
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = average(expected[i], static_cast<double>(model.parameters()[i]), n);
  }
  CHECK(allocations == 0);
  CHECK(averaged.n_averaged() == 6);
  double most = 0, moved = 0;
  const auto got = averaged.module().parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(got[i]) - expected[i]));
    moved = std::max(moved, std::abs(static_cast<double>(got[i] - model.parameters()[i])));
  }
  CHECK(most <= tolerance);
  CHECK(moved > 1e-3);
  CHECK(std::ranges::equal(averaged.module().buffer("norm.running_mean"_s),
                           model.buffer("norm.running_mean"_s)));
}

}  // namespace

TEST_CASE("the parameters of an averaged model are the mean over all updates") {
  const auto mean = [](double average, double p, int n) {
    return average + (p - average) / (n + 1);
  };
  check<float>({}, 1e-6, mean);
  check<double>({}, 1e-14, mean);
}

TEST_CASE("with a decay they are an exponential moving average that begins at the first model") {
  const auto moving = [](double average, double p, int n) {
    return n == 0 ? p : 0.75 * average + 0.25 * p;
  };
  check<float>({.decay = 0.75}, 1e-6, moving);
  check<double>({.decay = 0.75}, 1e-14, moving);
}

TEST_CASE("an averaged model evaluates with its own parameters, new ones after each update") {
  auto model = ike::initialize<float, rows>(net, ike::seed{1});
  auto other = ike::initialize<float, rows>(net, ike::seed{5});
  const auto x = ike::uniform<float, rows>(ike::seed{2});
  ike::averaged_model averaged{model};
  const auto sum = [&](auto& m) {
    float s = 0;
    for (float v : m(x)) s += std::abs(v);
    return s;
  };
  model.eval();
  other.eval();
  averaged.update_parameters(model);
  CHECK(sum(averaged) == sum(model));
  averaged.set_n_averaged(0);
  averaged.update_parameters(other);
  CHECK(sum(averaged) == sum(other));
  CHECK(sum(averaged) != sum(model));
}

TEST_CASE("an average continues from a saved state") {
  auto model = ike::initialize<float, rows>(net, ike::seed{1});
  auto other = ike::initialize<float, rows>(net, ike::seed{5});
  ike::averaged_model whole{model};
  whole.update_parameters(model);
  const auto saved = whole.module().snapshot();
  const auto count = whole.n_averaged();
  whole.update_parameters(other);

  ike::averaged_model resumed{other};
  ike::load_state_dict(resumed.module(), saved);
  resumed.set_n_averaged(count);
  resumed.update_parameters(other);
  CHECK(std::ranges::equal(resumed.module().parameters(), whole.module().parameters()));
}

TEST_CASE("a decay outside [0, 1) and a negative number of updates are refused") {
  auto model = ike::initialize<float, rows>(net, ike::seed{1});
  const auto make = [&](double decay) { ike::averaged_model{model, {.decay = decay}}; };
  CHECK_THROWS_WITH_AS(make(1), "averaged_model: Invalid decay: 1", ike::error);
  CHECK_THROWS_AS(make(-0.5), ike::error);
  CHECK_THROWS_AS(make(std::nan("")), ike::error);
  ike::averaged_model averaged{model};
  CHECK_THROWS_WITH_AS(averaged.set_n_averaged(-1),
                       "averaged_model: expected a number of updates, got -1", ike::state_error);
}

TEST_CASE("update_bn sets running statistics to the means over all batches") {
  const auto twice = [](auto norm) {
    return ike::sequential("fc"_m = ike::lazy_linear<5>{}, "norm"_m = norm, ike::relu{},
                           "norm2"_m = ike::lazy_batch_norm1d<>{.momentum = {}});
  };
  constexpr ike::shape batch{ike::dynamic, 3};
  const auto data = ike::tensor_dataset(ike::uniform<double, ike::shape{20, 3}>(ike::seed{2}),
                                        ike::uniform<double, ike::shape{20, 1}>(ike::seed{3}));
  ike::data_loader loader{data, {.batch = 8}};
  // Without momentum, a batch norm computes cumulative means.
  auto expected = ike::initialize<double, batch>(twice(ike::lazy_batch_norm1d<>{.momentum = {}}),
                                                 ike::seed{1}, ike::shape{8, 3});
  for (auto [x, t] : loader) expected(x);
  auto model = ike::initialize<double, batch>(twice(ike::lazy_batch_norm1d<>{}), ike::seed{1},
                                              ike::shape{8, 3});
  for (auto [x, t] : loader) model(x);
  ike::averaged_model average{model};
  average.update_parameters(model);
  ike::update_bn(loader, average.module());
  CHECK(!average.module().is_training());
  const auto state = ike::get_state_dict(average.module());
  for (const auto& e : ike::get_state_dict(expected)) {
    CAPTURE(e.name);
    if (e.type == ike::dtype::int64) {
      CHECK(std::ranges::equal(e.bytes, state.at(e.name).bytes));
      continue;
    }
    const auto* a = reinterpret_cast<const double*>(e.bytes.data());
    const auto* b = reinterpret_cast<const double*>(state.at(e.name).bytes.data());
    for (ike::dim_t i = 0; i < e.extents.numel(); ++i) CHECK(std::abs(a[i] - b[i]) <= 1e-12);
  }
  CHECK(average.module().buffer("norm.num_batches_tracked"_s)() == 3);

  // What is frozen stays; a momentum of 0 shows nothing of a batch.
  auto frozen = ike::initialize<double, batch>(
      ike::frozen<"norm", "norm2">(twice(ike::lazy_batch_norm1d<>{})), ike::seed{1},
      ike::shape{8, 3});
  ike::update_bn(loader, frozen);
  CHECK(frozen.buffer("norm.running_var"_s)(0) == 1);
  auto still = ike::initialize<double, batch>(twice(ike::lazy_batch_norm1d<>{.momentum = 0.0}),
                                              ike::seed{1}, ike::shape{8, 3});
  CHECK_THROWS_WITH_AS(ike::update_bn(loader, still),
                       "norm: update_bn cannot find the statistics of batches with momentum = 0",
                       ike::error);
  CHECK(still.buffer("norm.running_var"_s)(0) == 1);
}
