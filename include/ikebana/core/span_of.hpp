#pragma once

#include <span>
#include <vector>

namespace ikebana::detail {

/// All of a vector. What `std::span` does with any range, for which compilers look at some hundred
/// more templates with each type of element: 10 to 20 ms.
template <class T>
constexpr std::span<T> span_of(std::vector<T>& all) {
  return {all.data(), all.size()};
}
template <class T>
constexpr std::span<const T> span_of(const std::vector<T>& all) {
  return {all.data(), all.size()};
}

}  // namespace ikebana::detail
