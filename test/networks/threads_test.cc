// Training gives the same bits with any number of threads, and allocates nothing after its first
// step.

#include "ikebana/cpu/threads.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "allocations.hpp"
#include "examples/networks/forecaster.hpp"
#include "examples/networks/language_model.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/pool.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

/// The losses, parameters and buffers of some steps, as bits.
template <class Model, class X, class Y, class Loss, class Optimizer>
std::string train(Model& model, const X& x, const Y& target, const Loss& loss,
                  Optimizer& optimizer) {
  float losses[4];
  long before = 0;
  for (float& value : losses) {
    value = model.train_step(x, target, loss, optimizer);
    if (&value == losses) before = allocation_count.load();
  }
  CHECK(allocation_count.load() == before);
  std::string bits(reinterpret_cast<const char*>(losses), sizeof losses);
  const ike::state_view dict = ike::get_state_dict(model);
  for (const auto& e : dict)
    bits.append(reinterpret_cast<const char*>(e.bytes.data()), e.bytes.size());
  return bits;
}

/// f() returns the bits of a training.
template <class F>
void check_threads(F f) {
  std::string expected;
  for (const int threads : {1, 2, 3}) {
    INFO(threads << " threads");
    const ike::scoped_num_threads own(threads);
    const std::string got = f();
    if (threads == 1) expected = got;
    const bool same = got == expected;
    CHECK(same);
  }
}

constexpr shape images{256, 1, 16, 16};
constexpr auto convolutional =
    ike::sequential("conv1"_m = ike::lazy_conv2d<8, ike::kernel<3>, ike::padding<1>>{},
                    "bn1"_m = ike::lazy_batch_norm2d<>{}, "relu1"_m = ike::relu{},
                    "pool1"_m = ike::max_pool2d<ike::kernel<2>>{},
                    "conv2"_m = ike::lazy_conv2d<5, ike::kernel<3>>{}, "tanh"_m = ike::tanh{},
                    "flatten"_m = ike::flatten{}, "drop"_m = ike::dropout{.p = 0.3},
                    "fc1"_m = ike::lazy_linear<600>{}, "norm"_m = ike::lazy_layer_norm<>{},
                    "gelu"_m = ike::gelu{}, "fc2"_m = ike::lazy_linear<10>{});

constexpr shape windows{1024, 9, 1};
constexpr language_model::size sizes{
    .symbols = 96, .length = 48, .width = 64, .heads = 4, .inner = 128, .layers = 1};

}  // namespace

TEST_CASE("a convolutional network trains to the same bits on any number of threads") {
  const auto x = ike::uniform<float, images>(ike::seed{2});
  const auto target = classes_in_turn<shape{256}>(10);
  check_threads([&] {
    auto model = ike::initialize<float, images>(convolutional, ike::seed{1});
    ike::adam optimizer{model, {.lr = 0.001, .max_norm = 0.5}};
    return train(model, x, target, ike::cross_entropy{.label_smoothing = 0.1}, optimizer);
  });
}

TEST_CASE("a transformer trains to the same bits on any number of threads") {
  const auto x = classes_in_turn<shape{32, 48}>(96);
  const auto target = classes_in_turn<shape{32 * 48}>(96);
  check_threads([&] {
    auto model =
        ike::initialize<float, shape{32, 48}>(language_model::network<sizes>(0.1), ike::seed{1});
    ike::adamw optimizer{model, {.lr = 0.001}};
    return train(model, x, target, ike::cross_entropy{}, optimizer);
  });
}

TEST_CASE("an LSTM trains to the same bits on any number of threads") {
  const auto x = ike::uniform<float, windows>(ike::seed{2});
  const auto target = ike::uniform<float, windows>(ike::seed{3});
  check_threads([&] {
    auto model = ike::initialize<float, windows>(forecaster::network<1, 32, 1>, ike::seed{1});
    ike::sgd optimizer{model, {.lr = 0.1, .momentum = 0.9, .max_norm = 0.1}};
    return train(model, x, target, ike::mse_loss{}, optimizer);
  });
}
