#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ikebana/core/language.hpp"

namespace ikebana {

/// The element type of stored data. Weights of frozen networks may be numbers of 16 bits and bytes.
enum class dtype : std::uint8_t { float32, float64, int64, int32, uint8, bfloat16, float16, int8 };

/// The size of an element in bytes.
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
    case dtype::int8:
      return 1;
    case dtype::bfloat16:
    case dtype::float16:
      return 2;
  }
  return 0;
}

/// PyTorch's name of the type.
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
    case dtype::bfloat16:
      return "bfloat16";
    case dtype::float16:
      return "float16";
    case dtype::int8:
      return "int8";
  }
  return "?";
}

/// Whether a dtype exists for T.
template <class T>
inline constexpr bool has_dtype =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::int64_t> ||
    std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::uint8_t>;

/// The dtype of T.
template <class T>
inline constexpr dtype dtype_of = [] {
  static_assert(has_dtype<T>, "ikebana: no dtype stands for this type");
  if constexpr (std::is_same_v<T, double>)
    return dtype::float64;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return dtype::int64;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return dtype::int32;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return dtype::uint8;
  else
    return dtype::float32;
}();

/// The type that a dtype denotes.
template <dtype D>
using typed = std::conditional_t<
    D == dtype::float32, float,
    std::conditional_t<
        D == dtype::float64, double,
        std::conditional_t<D == dtype::int64, std::int64_t,
                           std::conditional_t<D == dtype::int32, std::int32_t, std::uint8_t>>>>;

/// The types that a model can compute in.
template <class T>
concept floating = std::is_same_v<T, float> || std::is_same_v<T, double>;

namespace detail {

/// The name of an element type in C++, for messages.
template <class T>
constexpr const char* element_name() {
  if constexpr (std::is_same_v<T, bool>)
    return "bool";
  else if constexpr (std::is_same_v<T, double>)
    return "double";
  else if constexpr (std::is_same_v<T, float>)
    return "float";
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return "std::int64_t";
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return "std::int32_t";
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return "std::uint8_t";
  else
    return "another type";
}

}  // namespace detail

}  // namespace ikebana
