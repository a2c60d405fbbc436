#include "ikebana/optim/grad_scaler.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/mixed_precision.hpp"
#include "ikebana/replicate/replicate.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<7>{}, "tanh"_m = ike::tanh{},
                                     "fc2"_m = ike::lazy_linear<3>{});
constexpr shape in{4, 5}, out{4, 3};

template <class T>
auto made() {
  return ike::initialize<T, in>(net, ike::seed{1});
}
template <class T>
auto x_of(std::uint64_t s) {
  return ike::uniform<T, in>(ike::seed{s});
}
template <class T>
auto y_of(std::uint64_t s) {
  return ike::uniform<T, out>(ike::seed{1000 + s});
}
template <class T>
std::vector<T> copied(std::span<T> x) {
  return {x.begin(), x.end()};
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const ike::error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE_TEMPLATE("Scaled steps by a power of two are those without, bit for bit", T, float,
                   double) {
  auto plain = made<T>(), scaled = made<T>();
  ike::adam first{plain, {.lr = 0.01}}, second{scaled, {.lr = 0.01}};
  ike::grad_scaler scaler{{.init_scale = 1024, .growth_interval = 3}};
  for (std::uint64_t s = 0; s < 7; ++s) {
    CHECK(scaler.scale() == (s < 3 ? 1024 : s < 6 ? 2048 : 4096));
    plain.zero_grad();
    scaled.zero_grad();
    const T a = plain.loss_backward(x_of<T>(s), y_of<T>(s), ike::mse_loss{});
    const T b = scaled.loss_backward(x_of<T>(s), y_of<T>(s), scaler.scale(ike::mse_loss{}));
    CHECK(a == b);
    CHECK(scaled.gradients()[0] == plain.gradients()[0] * static_cast<T>(scaler.scale()));
    if (s % 2 == 0) {
      CHECK(scaler.unscale(scaled));
      CHECK(copied(scaled.gradients()) == copied(plain.gradients()));
    }
    first.step();
    CHECK(scaler.step(scaled, second));
    scaler.update();
    CHECK(copied(scaled.parameters()) == copied(plain.parameters()));
  }
}

TEST_CASE("The options are PyTorch's unless they are given") {
  constexpr ike::grad_scaler_options o;
  static_assert(o.init_scale == 65536 && o.growth_factor == 2 && o.backoff_factor == 0.5);
  static_assert(o.growth_interval == 2000 && o.enabled);
  CHECK(ike::grad_scaler{}.scale() == 65536);
}

TEST_CASE("A gradient that is not finite leaves the step out and shrinks the scale") {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    auto model = made<float>();
    ike::sgd optimizer{model, {.lr = 0.1, .momentum = 0.9}};
    ike::grad_scaler scaler{{.init_scale = 8, .growth_interval = 2}};
    const auto before = copied(model.parameters());
    const auto backward = [&] {
      model.zero_grad();
      model.loss_backward(x_of<float>(0), y_of<float>(0), scaler.scale(ike::mse_loss{}));
    };
    backward();
    CHECK(scaler.step(model, optimizer));
    scaler.update();
    CHECK(scaler.state() == ike::grad_scaler_state{8, 1});
    const auto moved = copied(model.parameters());
    CHECK(moved != before);
    backward();
    model.gradients()[17] = bad;
    CHECK(!scaler.step(model, optimizer));
    scaler.update();
    CHECK(copied(model.parameters()) == moved);
    CHECK(scaler.state() == ike::grad_scaler_state{4, 0});
    backward();
    CHECK(scaler.step(model, optimizer));
    scaler.update();
    CHECK(scaler.state() == ike::grad_scaler_state{4, 1});
  }
}

TEST_CASE("Several models: an overflow of one holds back that one, and the scale of all") {
  auto a = made<float>(), b = made<float>();
  ike::sgd first{a, {.lr = 0.1}}, second{b, {.lr = 0.1}};
  ike::grad_scaler scaler{{.init_scale = 16}};
  const auto before = copied(a.parameters());
  a.gradients()[0] = std::numeric_limits<float>::infinity();
  b.gradients()[0] = 16;
  CHECK(!scaler.step(a, first));
  CHECK(scaler.step(b, second));
  scaler.update();
  CHECK(copied(a.parameters()) == before);
  CHECK(b.parameters()[0] == before[0] - 0.1f);
  CHECK(scaler.scale() == 8);
}

TEST_CASE("Calls out of order, options that make no sense") {
  auto model = made<float>();
  ike::sgd optimizer{model, {.lr = 0.1}};
  ike::grad_scaler scaler;
  CHECK(scaler.scale() == 65536);
  CHECK(message_of([&] { scaler.update(); }) ==
        "grad_scaler: update needs an unscale or a step before it");
  scaler.unscale(model);
  CHECK(message_of([&] { scaler.unscale(model); }) ==
        "grad_scaler: unscale was called already since the last update");
  scaler.step(model, optimizer);
  CHECK(message_of([&] { scaler.unscale(model); }) == "grad_scaler: unscale is called after step");
  CHECK(message_of([&] { scaler.step(model, optimizer); }) ==
        "grad_scaler: step was called already since the last update");
  scaler.update(32);
  CHECK(scaler.scale() == 32);
  scaler.step(model, optimizer);
  CHECK(message_of([] { ike::grad_scaler{{.growth_factor = 1}}; }) ==
        "grad_scaler: Invalid growth_factor: 1");
  CHECK(message_of([] { ike::grad_scaler{{.backoff_factor = 1}}; }) ==
        "grad_scaler: Invalid backoff_factor: 1");
  ike::grad_scaler off{{.enabled = false}};
  CHECK(off.scale() == 1);
  model.gradients()[0] = std::numeric_limits<float>::infinity();
  CHECK(off.step(model, optimizer));
  off.update();
}

TEST_CASE("The scale stops growing before it overflows, and comes back from a state") {
  auto model = made<float>();
  ike::sgd optimizer{model, {.lr = 0.1}};
  ike::grad_scaler scaler{{.init_scale = 0x1p126, .growth_interval = 1}};
  for (int i = 0; i < 4; ++i) {
    scaler.step(model, optimizer);
    scaler.update();
  }
  CHECK(scaler.scale() == 0x1p127);
  ike::grad_scaler other;
  other.load_state(scaler.state());
  CHECK(other.state() == scaler.state());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const ike::grad_scaler_state& nonsense :
       {ike::grad_scaler_state{0, 1}, {-2, 1}, {nan, 1}, {1e300, 1}, {2, -1}})
    CHECK_THROWS_AS(other.load_state(nonsense), ike::state_error);
  CHECK(other.state() == scaler.state());
}

TEST_CASE("Replicas in float16: an overflow on one rank is one on all, and small gradients live") {
  using policy = ike::replicate_policy<ike::mixed_precision<ike::float16, float, float>>;
  ike::launch(ike::threads{3}, [](ike::process_group auto& group) {
    auto model = ike::replicate<policy>(made<float>(), group);
    ike::sgd optimizer{model, {.lr = 0.1}};
    ike::grad_scaler scaler{{.init_scale = 0x1p24, .growth_interval = 4}};
    int made_steps = 0;
    std::vector<double> scales;
    for (std::uint64_t s = 0; s < 24; ++s) {
      model.zero_grad();
      // One rank has much larger errors than the others.
      auto y = y_of<float>(0);
      if (group.rank() == 1)
        for (float& v : y.span()) v *= 100;
      model.loss_backward(x_of<float>(0), y, scaler.scale(ike::mse_loss{}));
      made_steps += scaler.step(model, optimizer);
      scaler.update();
      scales.push_back(scaler.scale());
      for (const float p : model.parameters())
        if (!std::isfinite(p)) FAIL("a parameter is not finite");
    }
    CHECK(made_steps > 5);
    CHECK(made_steps < 24);
    CHECK(scaler.scale() < 0x1p24);
    std::vector<double> all(scales.size() * 3);
    group.all_gather(std::span<const double>{scales}, std::span<double>{all});
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == scales[i % scales.size()]);
  });
  // Gradients of about 1e-8 underflow in float16 without scaling.
  ike::single group;
  for (const bool enabled : {false, true}) {
    auto model = ike::replicate<policy>(made<float>(), group);
    ike::grad_scaler scaler{{.enabled = enabled}};
    auto y = ike::tensor<float, out>(model(x_of<float>(0)));
    for (float& v : y.span()) v += 1e-7f;
    model.loss_backward(x_of<float>(0), y, scaler.scale(ike::mse_loss{}));
    scaler.unscale(model);
    double most = 0;
    for (const float g : model.gradients()) most = std::fmax(most, std::fabs(g));
    CHECK((most > 0) == enabled);
    CHECK(most < 1e-6);
  }
}
