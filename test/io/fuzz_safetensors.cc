// A libFuzzer target: clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -Iinclude
// test/io/fuzz_safetensors.cc -o fuzz_safetensors
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "ikebana/core/error.hpp"
#include "ikebana/io/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const ikebana::state_dict dict =
        ikebana::parse_safetensors(std::as_bytes(std::span{data, size}));
    // Accepted files contain exactly the bytes that they declare, of which some types are widened.
    std::size_t bytes = 0;
    for (const auto& e : dict) {
      const auto expected = ikebana::detail::checked_byte_size(e.type, e.extents);
      if (static_cast<std::size_t>(expected) != e.bytes.size()) std::abort();
      bytes += e.bytes.size();
    }
    std::uint64_t length = 0;
    std::memcpy(&length, data, sizeof length);
    const std::size_t stored = size - 8 - length;
    if (bytes < stored || bytes > 4 * stored) std::abort();
  } catch (const ikebana::io_error&) {
  }
  return 0;
}
