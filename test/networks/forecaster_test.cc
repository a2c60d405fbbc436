#include "examples/networks/forecaster.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <tuple>

#include "ikebana/model/initialize.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/nn/loss.hpp"
#include "recorded_network.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using ike::dynamic;
using ike::shape;

namespace {

constexpr auto network = forecaster::network<2, 7, 2>;
constexpr auto with_state = forecaster::with_state<2, 7, 2>;
constexpr auto streaming = forecaster::network<2, 7, 2, ike::stateful<3>>;
static_assert(ike::has_uninitialized_params(network));
static_assert(ike::has_uninitialized_params(with_state));

constexpr shape series{3, 6, 3}, states{2, 3, 7};

template <class T>
const recorded_network::record<T> record{"forecaster"};

template <class T>
void compare() {
  const auto& r = record<T>;
  auto model = ike::initialize<T, shape{dynamic, dynamic, 3}>(network, ike::seed{1});
  ike::load_state_dict(model, recorded_network::saved("forecaster"));
  const auto x = r.template tensor<T, series>("x");
  const auto target = r.template tensor<T, shape{3, 6, 2}>("target");
  recorded_network::for_each_instruction_set([&] {
    model.zero_grad();
    const T loss = model.loss_backward(x, target, ike::mse_loss{});
    r.check("loss", &loss);
    r.check("y", model.output());
    r.check_gradients(model);
    ike::tensor<T, shape{3, 6, 2}> gy;
    ike::mse_loss{}.backward(model(x), target, gy.data());
    ike::tensor<T, series> gx;
    model.backward(gy, gx);
    r.check("gx", gx);
  });
}

template <class T>
void compare_with_state() {
  const auto& r = record<T>;
  constexpr shape open{2, dynamic, 7};
  auto model = ike::initialize<T, shape{dynamic, dynamic, 3}, open, open>(with_state, ike::seed{1});
  ike::load_state_dict(model, recorded_network::saved("forecaster"));
  const auto x = r.template tensor<T, series>("x");
  const auto h = r.template tensor<T, states>("h"), c = r.template tensor<T, states>("c");
  recorded_network::for_each_instruction_set([&] {
    const auto [y, h_n, c_n] = model(x, h, c);
    r.check("state.y", y);
    r.check("state.h_n", h_n);
    r.check("state.c_n", c_n);
    ike::tensor<T, series> gx;
    ike::tensor<T, states> gh, gc;
    model.zero_grad();
    model.backward(
        std::tuple(r.template tensor<T, shape{3, 6, 2}>("gy"), r.template tensor<T, states>("gh"),
                   r.template tensor<T, states>("gc")),
        gx, gh, gc);
    r.check("state.gx", gx);
    r.check("state.gh_0", gh);
    r.check("state.gc_0", gc);
    r.check_gradients(model, "state.grad.");
    // From zero states it equals the other network.
    const ike::tensor<T, states> zero;
    r.check("y", std::get<0>(model(x, zero, zero)));
    r.check("h_n", model.template output<1>());
    r.check("c_n", model.template output<2>());
  });
}

/// Step `i` of each sequence.
ike::tensor<float, shape{3, 1, 3}> step_of(const ike::tensor_view<const float, series>& x,
                                           ike::dim_t i) {
  ike::tensor<float, shape{3, 1, 3}> one;
  for (ike::dim_t n = 0; n < 3; ++n)
    for (ike::dim_t f = 0; f < 3; ++f) one(n, 0, f) = x(n, i, f);
  return one;
}

}  // namespace

TEST_CASE("an LSTM model with PyTorch's weights does what PyTorch's does") {
  compare<float>();
  compare<double>();
}

TEST_CASE("a state given and taken has PyTorch's values and gradients") {
  compare_with_state<float>();
  compare_with_state<double>();
}

TEST_CASE(
    "a stateful LSTM fed step by step says what the whole series gives, and allocates nothing") {
  const auto& r = record<float>;
  const ike::state_dict weights = recorded_network::saved("forecaster");
  auto model = ike::initialize<float, shape{3, 1, 3}>(streaming, ike::seed{1});
  ike::load_state_dict(model, weights);
  model.eval();
  const auto x = r.tensor<float, series>("x");
  const auto y = r.tensor<float, shape{3, 6, 2}>("y");
  long allocated = 0;
  for (ike::dim_t i = 0; i < 6; ++i) {
    const auto in = step_of(x, i);
    const long before = allocation_count;
    const auto out = model(in);
    if (i > 0) allocated += allocation_count - before;
    for (ike::dim_t n = 0; n < 3; ++n)
      for (ike::dim_t f = 0; f < 2; ++f)
        CHECK(out(n, 0, f) == doctest::Approx(y(n, i, f)).epsilon(1e-5));
  }
  CHECK(allocated == 0);
}
