#pragma once

#include <array>
#include <cstddef>
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

/// An element type of the format: its name, its bytes, and the dtype that it is read as.
struct safetensors_type {
  std::string_view name;
  std::size_t size;
  dtype type;
};

/// First the dtypes in the order of the enumeration; the last three of these and the types after
/// them are widened when they are read, which changes no value.
inline constexpr std::array<safetensors_type, 12> safetensors_types{{{"F32", 4, dtype::float32},
                                                                     {"F64", 8, dtype::float64},
                                                                     {"I64", 8, dtype::int64},
                                                                     {"I32", 4, dtype::int32},
                                                                     {"U8", 1, dtype::uint8},
                                                                     {"BF16", 2, dtype::float32},
                                                                     {"F16", 2, dtype::float32},
                                                                     {"I8", 1, dtype::int32},
                                                                     {"I16", 2, dtype::int32},
                                                                     {"U16", 2, dtype::int32},
                                                                     {"U32", 4, dtype::int64},
                                                                     {"BOOL", 1, dtype::uint8}}};

/// An uninitialized tensor is stored with shape [0], and in __metadata__ under this prefix and its
/// name, with its extents: "[10, lazy]".
inline constexpr std::string_view uninitialized_note = "ikebana.uninitialized:";

/// One tensor of the header; the offsets [begin, end) are relative to the end of the header.
struct safetensors_record {
  std::string name;
  dtype type = dtype::float32;
  std::size_t stored = 0;  ///< The index of its type in safetensors_types.
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
