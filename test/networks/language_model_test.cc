#include "examples/networks/language_model.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#include "ikebana/model/initialize.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/nn/loss.hpp"
#include "recorded_network.hpp"

namespace ike = ikebana;
using ike::dynamic;
using ike::shape;

namespace {

constexpr language_model::size small{
    .symbols = 13, .length = 9, .width = 12, .heads = 3, .inner = 20, .layers = 2};
constexpr auto network = language_model::network<small>(0);
static_assert(ike::has_uninitialized_params(network));

template <class T>
void compare() {
  const recorded_network::record<T> record{"language_model"};
  auto model = ike::initialize<T, shape{dynamic, dynamic}>(network, ike::seed{1});
  ike::load_state_dict(model, recorded_network::saved(record.network));
  const auto x = record.template tensor<std::int64_t, shape{3, 7}>("x");
  const auto target = record.template tensor<std::int64_t, shape{21}>("target");
  recorded_network::for_each_instruction_set([&] {
    model.zero_grad();
    const T loss = model.loss_backward(x, target, ike::cross_entropy{});
    record.check("loss", &loss);
    record.check("y", model.output());
    record.check_gradients(model);
  });
}

}  // namespace

TEST_CASE("a transformer with PyTorch's weights does what PyTorch's does") {
  compare<float>();
  compare<double>();
}

TEST_CASE("what is said at a place does not depend on the symbols after it") {
  auto model = ike::initialize<float, shape{dynamic, dynamic}>(network, ike::seed{1});
  ike::tensor<std::int64_t, shape{1, 9}> x;
  for (ike::dim_t i = 0; i < 9; ++i) x[i] = (5 * i + 2) % 13;
  const ike::tensor<float, shape{dynamic, 13}> whole{model(x)};
  for (ike::dim_t n = 1; n <= 9; ++n) {
    const ike::tensor_view<const std::int64_t, shape{1, dynamic}> begin(x.data(), shape{1, n});
    const auto y = model(begin);
    for (ike::dim_t i = 0; i < n * 13; ++i) CHECK(y[i] == doctest::Approx(whole[i]).epsilon(1e-4));
  }
}
