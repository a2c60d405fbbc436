#pragma once

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/repeat.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/module/arithmetic.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/adaptive_pool.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/pool.hpp"

// ResNet-18 (He et al., Deep Residual Learning for Image Recognition, 2015) with torchvision's
// structure and parameter names. No input dimension is written out.

namespace resnet {

namespace ike = ikebana;
using namespace ike::literals;

template <ike::dim_t Width, ike::dim_t Kernel, ike::dim_t Stride = 1>
using conv = ike::lazy_conv2d<Width, ike::kernel<Kernel>, ike::stride<Stride>,
                              ike::padding<Kernel / 2>, ike::bias<false>>;
using norm = ike::lazy_batch_norm2d<>;

/// For inputs of the block's own width.
template <ike::dim_t Width>
constexpr auto block = ike::graph([](auto x) {
  auto h = ike::relu{}("bn1"_m(norm{}, "conv1"_m(conv<Width, 3>{}, x)));
  return ike::relu{}("bn2"_m(norm{}, "conv2"_m(conv<Width, 3>{}, h)) + x);
});

/// Halves height and width, and changes the number of channels.
template <ike::dim_t Width>
constexpr auto halving_block = ike::graph([](auto x) {
  auto h = ike::relu{}("bn1"_m(norm{}, "conv1"_m(conv<Width, 3, 2>{}, x)));
  return ike::relu{}("bn2"_m(norm{}, "conv2"_m(conv<Width, 3>{}, h)) +
                     "downsample"_m(ike::sequential(conv<Width, 1, 2>{}, norm{}), x));
});

template <ike::dim_t Width>
constexpr auto halving_layer = ike::sequential(halving_block<Width>, block<Width>);

/// [N, channels, height, width] -> logits [N, Classes]. Width is the paper's 64, or less.
template <ike::dim_t Classes, ike::dim_t Width = 64>
constexpr auto resnet18 = ike::sequential(
    "conv1"_m = conv<Width, 7, 2>{}, "bn1"_m = norm{}, "relu"_m = ike::relu{},
    "maxpool"_m = ike::max_pool2d<ike::kernel<3>, ike::stride<2>, ike::padding<1>>{},
    "layer1"_m = ike::repeat<2>(block<Width>), "layer2"_m = halving_layer<2 * Width>,
    "layer3"_m = halving_layer<4 * Width>, "layer4"_m = halving_layer<8 * Width>,
    "avgpool"_m = ike::adaptive_avg_pool2d<ike::output_size<1>>{}, "flatten"_m = ike::flatten{},
    "fc"_m = ike::lazy_linear<Classes>{});

}  // namespace resnet
