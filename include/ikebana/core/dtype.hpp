#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ikebana {

/// The element type of stored data.
enum class dtype : std::uint8_t { float32, float64, int64, int32, uint8 };

constexpr std::size_t size_of(dtype d) {
  switch (d) {
    case dtype::float32:
      return 4;
    case dtype::float64:
      return 8;
    case dtype::int64:
      return 8;
    case dtype::int32:
      return 4;
    case dtype::uint8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name(dtype d) {
  switch (d) {
    case dtype::float32:
      return "float32";
    case dtype::float64:
      return "float64";
    case dtype::int64:
      return "int64";
    case dtype::int32:
      return "int32";
    case dtype::uint8:
      return "uint8";
  }
  return "?";
}

template <class T>
inline constexpr dtype dtype_of = dtype::uint8;
template <>
inline constexpr dtype dtype_of<float> = dtype::float32;
template <>
inline constexpr dtype dtype_of<double> = dtype::float64;
template <>
inline constexpr dtype dtype_of<std::int64_t> = dtype::int64;
template <>
inline constexpr dtype dtype_of<std::int32_t> = dtype::int32;

/// The types a model may compute in.
template <class T>
concept floating = dtype_of<T>
== dtype::float32 || dtype_of<T> == dtype::float64;

}  // namespace ikebana
