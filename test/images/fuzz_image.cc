// A libFuzzer target: clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -Iinclude
// test/images/fuzz_image.cc -lpng -ljpeg -o fuzz_image
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ikebana/core/error.hpp"
#include "ikebana/io/image_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  constexpr ikebana::dim_t any = ikebana::dynamic;
  try {
    ikebana::detail::parse_image<std::uint8_t, ikebana::shape{3, any, any}>("fuzz", file);
  } catch (const ikebana::io_error&) {
  }
  try {
    ikebana::detail::parse_image<float, ikebana::shape{1, any, any}>("fuzz", file);
  } catch (const ikebana::io_error&) {
  }
  return 0;
}
