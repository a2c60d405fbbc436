#include "ikebana/optim/lbfgs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "flat_model.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/train/training_state.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/load_recorded.hpp"

using namespace ikebana;

namespace {

constexpr dim_t n = 37;

template <class T>
std::span<const T> recorded_lbfgs(const std::string& name) {
  static const state_dict all = load_recorded("optimizers");
  const auto bytes = all.at((sizeof(T) == 4 ? "f32/" : "f64/") + name).bytes;
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

template <class T>
flat_model<T> start() {
  flat_model<T> model(n);
  const auto from = recorded_lbfgs<T>("parameters");
  for (std::size_t i = 0; i < from.size(); ++i) model.parameters()[i] = 3 * from[i];
  return model;
}

/// The function of test/data/optimizers.py and its gradients.
template <class T>
T curved(flat_model<T>& model) {
  const auto p = model.parameters(), g = model.gradients();
  T sum{};
  for (std::size_t i = 0; i < p.size(); ++i) {
    const T a = T(1) + static_cast<T>(i) / 4, b = static_cast<T>((i * 7) % 11) / 8 - T(0.5);
    sum += a * (p[i] - b) * (p[i] - b) / 2 + p[i] * p[i] * p[i] * p[i] / 8 +
           2 * (1 - std::cos(3 * p[i]));
    g[i] = a * (p[i] - b) + p[i] * p[i] * p[i] / 2 + 6 * std::sin(3 * p[i]);
    const T left = i > 0 ? p[i] - p[i - 1] : T(0),
            right = i + 1 < p.size() ? p[i + 1] - p[i] : T(0);
    sum += left * left / 4;
    g[i] += (left - right) / 2;
  }
  return sum;
}

/// Takes 20 steps beside PyTorch's, half of them by another optimizer that takes over the state.
template <class T>
void follow_lbfgs(const std::string& name, const lbfgs_options& options, double tolerance) {
  CAPTURE(name);
  auto model = start<T>();
  lbfgs<T> first{model, options}, second{model, options};
  const auto closure = [&] { return curved(model); };
  long allocations = 0;
  std::size_t row = 0;
  for (int step = 0; step < 20; ++step) {
    if (step == 10) copy_state(second, first);
    const long before = allocation_count_here;
    const double expected = static_cast<double>(curved(model));
    CHECK((step < 10 ? first : second).step(closure) == expected);
    allocations += allocation_count_here - before;
    if (step + 1 != 1 && step + 1 != 5 && step + 1 != 20) continue;
    const auto rows = recorded_lbfgs<T>(name).subspan(row++ * n, n);
    double most = 0;
    for (std::size_t i = 0; i < rows.size(); ++i)
      most = std::max(most, std::abs(static_cast<double>(model.parameters()[i] - rows[i])));
    CHECK(most <= tolerance);
  }
  CHECK(allocations == 0);
  if (sizeof(T) == 4) return;
  std::int64_t calls = 0, expected = 0;
  std::memcpy(&calls, second.state()[1].bytes.data(), sizeof calls);
  std::memcpy(&expected, recorded_lbfgs<T>(name + "/func_evals").data(), sizeof expected);
  CHECK(calls == expected);
}

constexpr auto wolfe = line_search::strong_wolfe;

}  // namespace

TEST_CASE("lbfgs steps as PyTorch's does, with and without a line search") {
  follow_lbfgs<double>("lbfgs", {.lr = 0.5, .max_iter = 2, .history_size = 4}, 1e-9);
  follow_lbfgs<double>("lbfgs_wolfe", {.max_iter = 2, .history_size = 4, .line_search_fn = wolfe},
                       1e-9);
  follow_lbfgs<double>("lbfgs_long", {.lr = 20, .max_iter = 3, .line_search_fn = wolfe}, 1e-9);
  follow_lbfgs<float>("lbfgs", {.lr = 0.5, .max_iter = 2, .history_size = 4}, 1e-3);
}

TEST_CASE("lbfgs fits a network, and resumes with the same bits") {
  using namespace ikebana::literals;
  constexpr auto net =
      sequential("a"_m = lazy_linear<8>{}, ikebana::tanh{}, "b"_m = lazy_linear<1>{});
  const auto x = uniform<double, shape{16, 2}>(seed{2});
  auto y = zeros<double, shape{16, 1}>();
  for (dim_t i = 0; i < 16; ++i) y(i, 0) = x(i, 0) * x(i, 1);
  auto model = initialize<double, shape{16, 2}>(net, seed{1});
  lbfgs optimizer{model, {.history_size = 10, .line_search_fn = wolfe}};
  const auto take = [&](auto& m, auto& o) {
    return o.step([&] {
      m.zero_grad();
      return m.loss_backward(x, y, mse_loss{});
    });
  };
  take(model, optimizer);
  const auto state = get_training_state(model, optimizer).clone();
  for (int i = 0; i < 4; ++i) take(model, optimizer);
  CHECK(mse_loss{}(model(x), y) < 1e-4);

  auto other = initialize<double, shape{16, 2}>(net, seed{3});
  lbfgs resumed{other, {.history_size = 10, .line_search_fn = wolfe}};
  load_training_state(other, resumed, state);
  for (int i = 0; i < 4; ++i) take(other, resumed);
  CHECK(std::ranges::equal(model.parameters(), other.parameters()));
}

TEST_CASE("lbfgs stops where gradients are small, and refuses invalid options") {
  flat_model<float> model(3);
  int calls = 0;
  const auto flat = [&] {
    ++calls;
    return 1.0F;
  };
  lbfgs optimizer{model};
  const std::vector<float> before(model.parameters().begin(), model.parameters().end());
  CHECK(optimizer.step(flat) == 1);
  CHECK(calls == 1);
  CHECK(std::ranges::equal(before, model.parameters()));
  CHECK_THROWS_WITH_AS((lbfgs{model, {.history_size = 0}}), "lbfgs: Invalid history_size: 0",
                       error);
  optimizer.options().max_iter = 0;
  CHECK_THROWS_WITH_AS(optimizer.step(flat), "lbfgs: Invalid max_iter: 0", error);
}
