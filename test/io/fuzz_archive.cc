// A libFuzzer target: clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -Iinclude
// test/io/fuzz_archive.cc -o fuzz_archive
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ikebana/core/error.hpp"
#include "ikebana/io/npz.hpp"
#include "ikebana/io/torch_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  try {
    ikebana::detail::parse_torch("fuzz", file, {});
  } catch (const ikebana::io_error&) {
  }
  try {
    ikebana::detail::parse_torch("fuzz", file, "tensors");
  } catch (const ikebana::io_error&) {
  }
  try {
    ikebana::detail::parse_npz("fuzz", file);
  } catch (const ikebana::io_error&) {
  }
  return 0;
}
