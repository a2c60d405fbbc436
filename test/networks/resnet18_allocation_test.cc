#include <doctest/doctest.h>

#include "allocations.hpp"
#include "examples/networks/resnet18.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"

namespace ike = ikebana;
using ike::shape;

namespace {

constexpr auto network = resnet::resnet18<10, 16>;
constexpr shape images{4, 1, 32, 32};

template <shape In>
long allocations() {
  auto model = ike::initialize<float, In>(network, ike::seed{1});
  ike::sgd optimizer{model, {.lr = 0.01, .momentum = 0.9}};
  const auto x = ike::uniform<float, images>(ike::seed{2});
  const auto t = classes_in_turn<shape{4}>(10);
  return allocations_of_work(model, x, t, ike::cross_entropy{}, optimizer);
}

}  // namespace

TEST_CASE("ResNet-18 trains and infers without allocating, with a static batch") {
  CHECK(allocations<images>() == 0);
}
TEST_CASE("ResNet-18 trains and infers without allocating, with a dynamic batch") {
  CHECK(allocations<images.with(0, ike::dynamic)>() == 0);
}
