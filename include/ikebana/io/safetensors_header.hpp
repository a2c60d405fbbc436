#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"

namespace ikebana::detail {

/// The longest header that the format's reference reader accepts.
inline constexpr std::uint64_t safetensors_header_limit = 100'000'000;

/// The format's names of the dtypes, in the order of the enumeration.
inline constexpr std::array<std::string_view, 5> safetensors_dtypes{"F32", "F64", "I64", "I32",
                                                                    "U8"};

/// An uninitialized tensor is stored with shape [0], and in __metadata__ under this prefix and its
/// name, with its extents: "[10, lazy]".
inline constexpr std::string_view uninitialized_note = "ikebana.uninitialized:";

/// One tensor of the header; the offsets [begin, end) are relative to the end of the header.
struct safetensors_record {
  std::string name;
  dtype type = dtype::float32;
  shape extents{};
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool uninitialized = false;
};

struct safetensors_header {
  std::vector<safetensors_record> records;
  std::vector<std::pair<std::string, std::string>> metadata;
};

}  // namespace ikebana::detail
