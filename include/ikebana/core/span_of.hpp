#pragma once

#include <span>
#include <vector>

#include "ikebana/core/language.hpp"

namespace ikebana::detail {

/// A span over a whole vector. std::span's range constructor does the same, but instantiates about
/// a hundred more templates per element type: 10 to 20 ms of compile time.
template <class T>
constexpr std::span<T> span_of(std::vector<T>& all) {
  return {all.data(), all.size()};
}
template <class T>
constexpr std::span<const T> span_of(const std::vector<T>& all) {
  return {all.data(), all.size()};
}

}  // namespace ikebana::detail
