#include <doctest/doctest.h>

#include <cstdint>

#include "allocations.hpp"
#include "examples/networks/forecaster.hpp"
#include "examples/networks/language_model.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adam.hpp"

namespace ike = ikebana;
using ike::dynamic;
using ike::shape;

namespace {

constexpr shape windows{16, 48, 1};
constexpr language_model::size sizes{
    .symbols = 96, .length = 48, .width = 64, .heads = 4, .inner = 128, .layers = 2};

template <shape In>
long allocations_of_forecaster() {
  auto model = ike::initialize<float, In>(forecaster::network<1, 32, 1>, ike::seed{1});
  ike::adam optimizer{model, {.lr = 0.001}};
  const auto x = ike::uniform<float, windows>(ike::seed{2});
  const auto t = ike::uniform<float, windows>(ike::seed{3});
  return allocations_of_work(model, x, t, ike::mse_loss{}, optimizer);
}

template <shape In>
long allocations_of_language_model() {
  auto model = ike::initialize<float, In>(language_model::network<sizes>(), ike::seed{1});
  ike::adamw optimizer{model, {.lr = 0.001}};
  const auto x = classes_in_turn<shape{3, 48}>(96);
  const auto t = classes_in_turn<shape{3 * 48}>(96);
  return allocations_of_work(model, x, t, ike::cross_entropy{}, optimizer);
}

}  // namespace

TEST_CASE("an LSTM trains and infers without allocating, with a static batch") {
  CHECK(allocations_of_forecaster<windows>() == 0);
}
TEST_CASE("an LSTM trains and infers without allocating, with a dynamic batch and length") {
  CHECK(allocations_of_forecaster<shape{dynamic, dynamic, 1}>() == 0);
}
TEST_CASE("a transformer trains and infers without allocating, with a static batch") {
  CHECK(allocations_of_language_model<shape{3, 48}>() == 0);
}
TEST_CASE("a transformer trains and infers without allocating, with a dynamic batch and length") {
  CHECK(allocations_of_language_model<shape{dynamic, dynamic}>() == 0);
}
