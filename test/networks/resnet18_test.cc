#include "examples/networks/resnet18.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "ikebana/model/initialize.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/nn/loss.hpp"
#include "recorded_network.hpp"

namespace ike = ikebana;
using ike::shape;

namespace {

constexpr auto network = resnet::resnet18<5, 2>;
static_assert(ike::has_uninitialized_params(network));

template <class T>
void compare() {
  const recorded_network::record<T> record{"resnet18"};
  const ike::state_dict weights = recorded_network::saved(record.network);
  auto model = ike::initialize<T, shape{ike::dynamic, 3, 33, 33}>(network, ike::seed{1});
  const auto x = record.template pixels<shape{4, 3, 33, 33}>();
  const auto target = record.template tensor<std::int64_t, shape{4}>("target");
  recorded_network::for_each_instruction_set([&] {
    ike::load_state_dict(model, weights);
    model.eval();
    record.check("y_eval", model(x));
    model.train();
    model.zero_grad();
    const T loss = model.loss_backward(x, target, ike::cross_entropy{});
    record.check("loss", &loss);
    record.check("y", model.output());
    record.check_gradients(model);
    record.check_buffers(model);
  });
}

}  // namespace

TEST_CASE("ResNet-18 with PyTorch's weights does in float what PyTorch's does") {
  compare<float>();
}
TEST_CASE("ResNet-18 with PyTorch's weights does in double what PyTorch's does") {
  compare<double>();
}
