// Plays a tone through the amplifier of amplifier.cc, whose weights tools/embed has made a part of
// the program: it reads no file and keeps no copy of them.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>

#include "examples/amplifier_weights.hpp"
#include "ikebana/deploy.hpp"
#include "ikebana/ikebana.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

constexpr auto amplifier = ike::sequential("lstm"_m = ike::lazy_lstm<8, ike::stateful<1>>{},
                                           "out"_m = ike::lazy_linear<1>{});

int main() {
  const auto net = ike::freeze<amplifier_weights, shape{1, 1, 1}>(amplifier);

  // A lane in static memory.
  static std::array<std::byte, 65536> memory;
  auto lane = net.lane(memory);

  float loudest = 0;
  for (int i = 0; i < 4410; ++i) {
    const float x = 0.5f * std::sin(static_cast<float>(i) * 0.0627f);  // 440 Hz
    const float y = net(lane, ike::tensor_view<const float, shape{1, 1, 1}>(&x))(0, 0, 0);
    loudest = std::max(loudest, std::abs(y));
  }
  std::printf("%zu bytes of weights in read-only memory, %zu of the lane, loudest sample %.3f\n",
              sizeof amplifier_weights::data, net.lane_bytes(), static_cast<double>(loudest));
  return loudest > 0.5f && loudest < 1.5f ? 0 : 1;
}
