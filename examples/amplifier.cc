// Plays a WAV file through an LSTM that PyTorch trained to sound like an overdriven amplifier, one
// sample at a time, as an audio callback would.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "ikebana/deploy.hpp"
#include "ikebana/ikebana.hpp"
#include "ikebana/io/safetensors.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

// The state of an LSTM that is stateful carries on from call to call.
constexpr auto amplifier = ike::sequential("lstm"_m = ike::lazy_lstm<8, ike::stateful<1>>{},
                                           "out"_m = ike::lazy_linear<1>{});
constexpr shape sample{1, 1, 1};

int main() {
  const std::string data = "examples/data/";
  // One channel of 16 bits after a header of 44 bytes.
  std::ifstream in(data + "guitar.wav", std::ios::binary);
  std::vector<char> bytes(std::istreambuf_iterator<char>(in), {});
  auto* const sound = reinterpret_cast<std::int16_t*>(bytes.data() + 44);
  const std::size_t n = (bytes.size() - 44) / 2;
  auto model = ike::initialize<float, sample>(amplifier, ike::seed{1});
  ike::load_state_dict(model, ike::load(data + "amplifier.safetensors"));
  const auto frozen = ike::freeze(model);
  auto stream = frozen.lane();
  ike::prepare_thread();
  std::vector<float> played(n);
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < n; ++i) {
    const float x = static_cast<float>(sound[i]) / 32768;
    played[i] = frozen(stream, ike::tensor_view<const float, sample>(&x))(0, 0, 0);
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  std::printf("%zu samples, %.0f ns each\n", n, took.count() / static_cast<double>(n));

  const auto recorded = ike::load(data + "amplified.safetensors");
  const auto expected = recorded.at("output").view<float, shape{ike::dynamic}>();
  float wrong = 0;
  for (std::size_t i = 0; i < n; ++i) {
    wrong = std::max(wrong, std::abs(played[i] - expected[static_cast<ike::dim_t>(i)]));
    sound[i] = static_cast<std::int16_t>(std::clamp(played[i], -1.0f, 1.0f) * 32767);
  }
  std::printf("largest difference from PyTorch: %.1e\n", static_cast<double>(wrong));
  const char* const directory = std::getenv("BUILD_WORKING_DIRECTORY");
  std::ofstream out(std::string(directory ? directory : ".") + "/amplified.wav", std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return out && wrong < 1e-5f ? 0 : 1;
}
