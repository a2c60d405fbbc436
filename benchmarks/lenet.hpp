#pragma once

#include "ikebana/ikebana.hpp"

namespace bench {

/// The LeNet of the benchmarks: an image of one channel, 28x28, ten classes.
inline constexpr auto small_lenet = [] {
  namespace ike = ikebana;
  using namespace ike::literals;
  return ike::sequential(
      "conv1"_m = ike::lazy_conv2d<6, ike::kernel<5>, ike::padding<2>>{}, ike::relu{},
      ike::max_pool2d<ike::kernel<2>>{}, "conv2"_m = ike::lazy_conv2d<16, ike::kernel<5>>{},
      ike::relu{}, ike::max_pool2d<ike::kernel<2>>{}, ike::flatten{},
      "fc1"_m = ike::lazy_linear<120>{}, ike::relu{}, "fc2"_m = ike::lazy_linear<84>{}, ike::relu{},
      "fc3"_m = ike::lazy_linear<10>{});
}();

}  // namespace bench
