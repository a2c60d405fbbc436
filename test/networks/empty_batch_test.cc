#include <doctest/doctest.h>

#include <type_traits>

#include "examples/networks/forecaster.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/conv_transpose.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/pool.hpp"
#include "ikebana/nn/smooth_activation.hpp"
#include "ikebana/nn/transformer_encoder_layer.hpp"

// A batch without rows is an owning tensor without memory: its data() is null.

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

/// Every call of a batch without rows, also as the first one in a mode, among others.
template <class T, shape In, class M>
void check_empty_batches(const M& network) {
  const auto none = ike::zeros<T, In>(0);
  REQUIRE(none.data() == nullptr);
  for (const auto set : ike::cpu::instruction_sets) {
    if (!ike::cpu::supports(set)) continue;
    const auto before = ike::cpu::active_instruction_set();
    ike::cpu::set_instruction_set(set);
    CAPTURE(ike::cpu::name(set));
    for (const ike::dim_t rows_before : {0, 1, 3}) {
      for (const bool training : {false, true}) {
        CAPTURE(rows_before);
        CAPTURE(training);
        auto m = ike::initialize<T, In>(network, ike::seed{1});
        m.train(training);
        if (rows_before != 0) m(ike::uniform<T, In>(ike::seed{2}, rows_before));
        const auto y = m(none);
        CHECK(y.extent(0) == 0);
        CHECK(y.size() == 0);
        ike::tensor<T, std::remove_cvref_t<decltype(y)>::static_shape> dy(y.extents());
        ike::tensor<T, In> dx(none.extents());
        m.zero_grad();
        m.backward(dy);
        m(none);
        m.backward(dy, dx);
        for (const T g : m.gradients()) CHECK(g == 0);
        CHECK(m(ike::uniform<T, In>(ike::seed{2}, 2)).extent(0) == 2);
      }
    }
    ike::cpu::set_instruction_set(before);
  }
}

}  // namespace

TEST_CASE("an empty batch passes through dense layers, in training and in evaluation") {
  check_empty_batches<float, shape{dynamic, 4}>(
      ike::sequential("fc"_m = ike::lazy_linear<3>{}, "relu"_m = ike::relu{}));
  check_empty_batches<double, shape{dynamic, 5}>(
      ike::sequential("fc1"_m = ike::lazy_linear<70>{}, "gelu"_m = ike::gelu{},
                      "fc2"_m = ike::lazy_linear<9>{}, "sigmoid"_m = ike::sigmoid{},
                      "drop"_m = ike::dropout{.p = 0.5}, "fc3"_m = ike::lazy_linear<2>{}));
}

TEST_CASE("an empty batch passes through convolutions, norms, pools and sums") {
  check_empty_batches<float, shape{dynamic, 1, 8, 8}>(ike::sequential(
      "conv1"_m = ike::lazy_conv2d<3, ike::kernel<3>, ike::padding<1>>{},
      "bn1"_m = ike::lazy_batch_norm2d<>{}, "relu1"_m = ike::relu{},
      "block"_m = ike::residual(
          ike::sequential("conv"_m = ike::lazy_conv2d<3, ike::kernel<3>, ike::padding<1>>{},
                          "bn"_m = ike::lazy_batch_norm2d<>{})),
      "relu2"_m = ike::relu{}, "pool"_m = ike::max_pool2d<ike::kernel<2>>{},
      "flatten"_m = ike::flatten{}, "fc1"_m = ike::lazy_linear<5>{}, "tanh"_m = ike::tanh{},
      "fc2"_m = ike::lazy_linear<2>{}));
}

TEST_CASE("an empty batch passes through convolutions of many channels") {
  check_empty_batches<float, shape{dynamic, 16, 12, 12}>(ike::sequential(
      "conv1"_m = ike::lazy_conv2d<32, ike::kernel<3>, ike::padding<1>>{}, "relu"_m = ike::relu{},
      "conv2"_m = ike::lazy_conv2d<32, ike::kernel<3>, ike::padding<1>>{},
      "up"_m = ike::lazy_conv_transpose2d<4, ike::kernel<2>, ike::stride<2>>{},
      "depthwise"_m = ike::lazy_conv2d<4, ike::kernel<3>, ike::groups<4>>{}));
}

TEST_CASE("an empty batch passes through attention and recurrence") {
  check_empty_batches<float, shape{dynamic, 4, 6}>(ike::sequential(
      "encoder"_m = ike::lazy_transformer_encoder_layer<2, 8, ike::batch_first<true>>{},
      "norm"_m = ike::lazy_layer_norm<>{}, "fc"_m = ike::lazy_linear<2>{}));
  check_empty_batches<float, shape{dynamic, 4, 3}>(forecaster::network<2, 5, 1>);
}
