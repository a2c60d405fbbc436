// A libFuzzer target: clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -Iinclude -I.
// test/io/fuzz_onnx.cc -o fuzz_onnx
#include <cstddef>
#include <cstdint>
#include <string>

#include "ikebana/core/error.hpp"
#include "tools/onnx_import.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    onnx_import::import_onnx("fuzz", std::string(reinterpret_cast<const char*>(data), size),
                             "fuzz");
  } catch (const ikebana::io_error&) {
  }
  return 0;
}
