// Plays a WAV file through an LSTM that PyTorch trained to sound like an overdriven amplifier, one
// sample at a time, as an audio callback would.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
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

/// The samples of a WAV file with one channel of 16 bits and a header of 44 bytes.
std::vector<std::int16_t> read_wav(const std::string& path, char* header) {
  std::ifstream file(path, std::ios::binary);
  std::uint32_t bytes = 0;
  if (!file.read(header, 44) || std::memcmp(header, "RIFF", 4) != 0 || header[22] != 1 ||
      header[34] != 16)
    throw std::runtime_error(path + ": expected a WAV file with one channel of 16 bits");
  std::memcpy(&bytes, header + 40, 4);
  std::vector<std::int16_t> samples(bytes / 2);
  file.read(reinterpret_cast<char*>(samples.data()), static_cast<std::streamsize>(bytes));
  return samples;
}

int main(int argc, char** argv) {
  std::string in = "examples/data/guitar.wav", out = "amplified.wav",
              weights = "examples/data/amplifier.safetensors",
              expected = "examples/data/amplified.safetensors";
  CLI::App app{"Plays a WAV file through an amplifier."};
  app.add_option("--in", in, "one channel of 16 bits")->capture_default_str();
  app.add_option("--out", out, "the file to write")->capture_default_str();
  app.add_option("--weights", weights, "a state of the LSTM")->capture_default_str();
  app.add_option("--expected", expected, "what PyTorch made of the file; empty for nothing");
  CLI11_PARSE(app, argc, argv);
  try {
    char header[44];
    std::vector<std::int16_t> samples = read_wav(in, header);
    auto model = ike::initialize<float, sample>(amplifier, ike::seed{1});
    ike::load_state_dict(model, ike::load(weights));
    const auto frozen = ike::freeze(model);
    auto stream = frozen.lane();
    ike::prepare_thread();

    std::vector<float> played(samples.size());
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const float x = static_cast<float>(samples[i]) / 32768;
      played[i] = frozen(stream, ike::tensor_view<const float, sample>(&x))(0, 0, 0);
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    std::printf("%zu samples, %.0f ns each\n", samples.size(),
                took.count() / static_cast<double>(samples.size()));

    float wrong = 0;
    if (!expected.empty()) {
      const auto file = ike::load(expected);
      const auto recorded = file.at("output").view<float, shape{ike::dynamic}>();
      for (std::size_t i = 0; i < played.size(); ++i)
        wrong = std::max(wrong, std::abs(played[i] - recorded[static_cast<ike::dim_t>(i)]));
      std::printf("largest difference from PyTorch: %.1e\n", static_cast<double>(wrong));
    }
    for (std::size_t i = 0; i < played.size(); ++i)
      samples[i] = static_cast<std::int16_t>(std::clamp(played[i], -1.0f, 1.0f) * 32767);
    if (const char* directory = std::getenv("BUILD_WORKING_DIRECTORY"))
      out = std::string(directory) + "/" + out;
    std::ofstream file(out, std::ios::binary);
    file.write(header, 44);
    file.write(reinterpret_cast<const char*>(samples.data()),
               static_cast<std::streamsize>(2 * samples.size()));
    return file && wrong < 1e-5f ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
