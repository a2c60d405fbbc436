// Runs a fuzz target without a fuzzer: on well-formed files and on many almost well-formed ones.
// Deterministic, so that failures are reproducible; libFuzzer searches for new ones.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using bytes = std::vector<std::uint8_t>;

// Numbers at which lengths overflow, are off by one, or change sign.
constexpr std::array<std::uint8_t, 8> corners{0x00, 0x01, 0x7f, 0x80, 0xff, '"', '{', '\n'};

void mutate(bytes& input, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  for (std::size_t changes = 1 + below(4); changes != 0; --changes) {
    if (input.empty()) input.push_back(corners[below(corners.size())]);
    // Half of the changes are at the beginning, where headers are.
    const std::size_t at =
        below(below(2) == 0 ? input.size() : std::min(input.size(), std::size_t{64}));
    const auto position = input.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(5)) {
      case 0:
        *position = static_cast<std::uint8_t>(*position ^ (1u << below(8)));
        break;
      case 1:
        *position = corners[below(corners.size())];
        break;
      case 2:
        input.insert(position, corners[below(corners.size())]);
        break;
      case 3:
        input.erase(position);
        break;
      default:
        input.resize(at);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  constexpr unsigned seed = 1;
  constexpr int runs = 2000;
  std::printf("seed %u, %d runs for each of %d files\n", seed, runs, argc - 1);

  std::mt19937 random(seed);
  for (int i = 0; i < argc; ++i) {  // The first starts from nothing.
    bytes whole;
    if (i != 0) {
      std::ifstream file(argv[i], std::ios::binary);
      whole.assign(std::istreambuf_iterator<char>(file), {});
      if (whole.empty()) {
        std::printf("%s cannot be read\n", argv[i]);
        return 1;
      }
      LLVMFuzzerTestOneInput(whole.data(), whole.size());
    }
    bytes input;
    for (int run = 0; run < runs; ++run) {
      if (run % 8 == 0) input = whole;
      mutate(input, random);
      LLVMFuzzerTestOneInput(input.data(), input.size());
    }
  }
}
