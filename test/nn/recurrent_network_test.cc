#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/lstm.hpp"
#include "ikebana/optim/adam.hpp"
#include "test/support/count_allocations.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

constexpr auto encoder = graph([](auto x, auto lengths) {
  const auto [y, h, c] = "encoder"_m(
      lazy_lstm<8, packed<true>, bidirectional<true>, num_layers<2>, batch_first<true>>{.dropout =
                                                                                            0.1},
      x, lengths);
  // The decoder starts with the final states of both directions of both layers.
  const auto [z, g] =
      "decoder"_m(lazy_gru<8, bidirectional<true>, num_layers<2>, batch_first<true>>{}, y, h);
  return "head"_m(lazy_linear<1>{}, z);
});

constexpr auto streaming = graph([](auto x) {
  const auto [y, h, c] = "lstm"_m(lazy_lstm<4, stateful<2>>{}, x);
  return y;
});

}  // namespace

TEST_CASE("a network of recurrent modules learns, with lengths, and allocates nothing") {
  auto model = initialize<float, shape{dynamic, 5, 3}, shape{dynamic}>(encoder, seed{1});
  adam optimizer{model, {.lr = 0.01F}};
  const auto step = [&](dim_t batch) {
    const auto x = uniform<float, shape{dynamic, 5, 3}>(seed{2}, batch);
    tensor<float, shape{dynamic, 5, 1}> target(shape{batch, 5, 1});
    tensor<std::int64_t, shape{dynamic}> lengths(shape{batch});
    for (dim_t b = 0; b < batch; ++b) lengths[b] = 1 + (3 * b) % 5;
    // The sum of the whole sequence, at each of its steps.
    for (dim_t b = 0; b < batch; ++b)
      for (dim_t t = 0; t < lengths[b]; ++t)
        for (dim_t s = 0; s < 5; ++s) target.data()[b * 5 + s] += x.data()[(b * 5 + t) * 3];
    const long before = allocation_count.load();
    const float loss = model.train_step(inputs(x, lengths), target, mse_loss{}, optimizer);
    return std::pair{loss, allocation_count.load() - before};
  };
  const float first = step(7).first;
  float last = first;
  long allocated = 0;
  for (int i = 0; i < 200; ++i) {
    const auto [loss, n] = step(i % 2 == 0 ? 7 : 4);
    last = loss;
    allocated += n;
  }
  CHECK(allocated == 0);
  CHECK(last < first / 5);
}

TEST_CASE("the state of a stateful module stays in the model and out of its state dict") {
  auto model = initialize<double, shape{dynamic, 2, 3}>(streaming, seed{1});
  const ikebana::state_view state = get_state_dict(model);
  CHECK(state.size() == 4);
  CHECK(state.contains("lstm.weight_ih_l0"));
  const auto x = uniform<double, shape{dynamic, 2, 3}>(seed{2}, 4);
  const auto once = [&] {
    const auto y = model(x);
    return std::vector<double>(y.data(), y.data() + 4 * 2 * 4);
  };
  const std::vector<double> first = once(), second = once();
  CHECK(first != second);
  std::ranges::fill(model.buffers(), std::byte{0});
  CHECK(once() == first);
}
