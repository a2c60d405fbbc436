// A libFuzzer target: clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -Iinclude
// test/io/fuzz_shard_index.cc -o fuzz_shard_index
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ikebana/core/error.hpp"
#include "ikebana/io/safetensors_shards.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto files = ikebana::detail::parse_shard_index(
        "fuzz", std::string_view(reinterpret_cast<const char*>(data), size));
    // No file is outside of the directory.
    for (const auto& [name, file] : files)
      if (file.empty() || file.find('/') != std::string::npos || file == "..") std::abort();
  } catch (const ikebana::io_error&) {
  }
  return 0;
}
