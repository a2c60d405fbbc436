#include <doctest/doctest.h>

#include <cstdint>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/pool.hpp"
#include "recorded_network.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

template <ike::dim_t Conv1, ike::dim_t Conv2, ike::dim_t Fc1, ike::dim_t Fc2>
constexpr auto lenet = ike::sequential(
    "conv1"_m = ike::lazy_conv2d<Conv1, ike::kernel<5>, ike::padding<2>>{}, "relu1"_m = ike::relu{},
    "pool1"_m = ike::max_pool2d<ike::kernel<2>>{},
    "conv2"_m = ike::lazy_conv2d<Conv2, ike::kernel<5>>{}, "relu2"_m = ike::relu{},
    "pool2"_m = ike::max_pool2d<ike::kernel<2>>{}, "flatten"_m = ike::flatten{},
    "fc1"_m = ike::lazy_linear<Fc1>{}, "relu3"_m = ike::relu{}, "fc2"_m = ike::lazy_linear<Fc2>{},
    "relu4"_m = ike::relu{}, "fc3"_m = ike::lazy_linear<10>{});
static_assert(ike::has_uninitialized_params(lenet<6, 16, 120, 84>));

template <class T>
void compare_small() {
  const recorded_network::record<T> record{"small_lenet"};
  auto model = ike::initialize<T, shape{dynamic, 1, 28, 28}>(lenet<3, 5, 17, 13>, ike::seed{1});
  ike::load_state_dict(model, recorded_network::saved(record.network));
  const auto x = record.template pixels<shape{3, 1, 28, 28}>();
  const auto target = record.template tensor<std::int64_t, shape{3}>("target");
  recorded_network::for_each_instruction_set([&] {
    model.zero_grad();
    const T loss = model.loss_backward(x, target, ike::cross_entropy{});
    record.check("loss", &loss);
    record.check("y", model.output());
    record.check("y_eval", model.output());
    record.check_gradients(model);
  });
}

/// The family `state_dicts`.
template <class T>
void compare_full() {
  const ike::state_dict dict =
      load_recorded(std::string{"state_dicts"} + recorded_network::suffix<T>);
  auto model = ike::initialize<T, shape{dynamic, 1, 28, 28}>(lenet<6, 16, 120, 84>, ike::seed{1});
  ike::load_state_dict(model, recorded_network::saved("lenet"));
  const auto x = dict.at("lenet/x").template view<T, shape{2, 1, 28, 28}>();
  const auto target = dict.at("lenet/target").template view<std::int64_t, shape{2}>();
  recorded_network::for_each_instruction_set([&] {
    model.zero_grad();
    const T loss = model.loss_backward(x, target, ike::cross_entropy{});
    recorded_network::check_close(&loss, dict.at("lenet/loss"));
    recorded_network::check_close(model.output().data(), dict.at("lenet/logits"));
    recorded_network::check_close(model.gradient("fc3.bias"_s).data(),
                                  dict.at("lenet/grad.fc3.bias"));
    recorded_network::check_close(model.gradient("conv1.weight"_s).data(),
                                  dict.at("lenet/grad.conv1.weight"));
  });
}

}  // namespace

TEST_CASE("LeNet with PyTorch's weights does what PyTorch's does, gradient by gradient") {
  compare_small<float>();
  compare_small<double>();
}

TEST_CASE("LeNet of the usual widths with PyTorch's weights does what PyTorch's does") {
  compare_full<float>();
  compare_full<double>();
}
