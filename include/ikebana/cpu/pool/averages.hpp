#pragma once

// The ways that averages of windows go, and their gradients, in the order in which they are asked.

#include <array>

#include "ikebana/cpu/conv/depthwise/ways.hpp"
#include "ikebana/cpu/pool/average_ways.hpp"
#include "ikebana/cpu/pool/rows.hpp"
#include "ikebana/cpu/pool/ways.hpp"

namespace ikebana::cpu::detail {

/// Asked one after another; null where the caller's windows never go so. `any` is for those that
/// all others have refused.
template <class T>
struct average_ways {
  std::array<average_way<T>, 6> quick;
  decltype(&averages_of_any<T>) any;

  bool run(const average_job<T>& job) const {
    for (const average_way<T> way : quick)
      if (way != nullptr && way(job)) return true;
    return false;
  }
};
template <class T>
inline constexpr average_ways<T> all_average_ways{
    {&averages_by_halving<T>, &averages_of_planes<T>, &averages_of_threes<T>, &averages_by_lanes<T>,
     &averages_by_convolution<T>, &averages_by_rows<T>},
    &averages_of_any<T>};
template <class T>
inline constexpr average_ways<T> all_spread_ways{
    {&spread_by_halving<T>, &spread_to_planes<T>, &spread_to_threes<T>, &spread_by_lanes<T>,
     &spread_by_convolution<T>, &spread_by_rows<T>},
    &spread_to_any<T>};

/// The ways of the convolutions that stand for such windows.
constexpr unsigned convolution_ways_of(const window_kind& k) {
  return depthwise_ways_of(
      {-1, -1, -1, 1, {-1, -1, -1}, {-1, -1, -1}, k.kernel, k.stride, k.padding, {1, 1, 1}});
}

/// `Differs`: whether the sizes that sums are divided by may.
template <class T, window_kind K, bool Differs>
constexpr average_ways<T> average_ways_of() {
  average_ways<T> ways{};
  if constexpr (is_two_by_two(K)) ways.quick[0] = &averages_by_halving<T>;
  if constexpr (!always_halves(K)) {
    if constexpr (may_be_global(K)) ways.quick[1] = &averages_of_planes<T>;
    constexpr bool by_threes = is_three_by_three(K) && K.padding[2] == 1;
    if constexpr (by_threes) ways.quick[2] = &averages_of_threes<T>;
    ways.quick[3] = &averages_by_lanes<T>;
    if constexpr (!by_threes && may_be_by_convolution(K.kernel, K.stride, 0))
      ways.quick[4] = &averages_by_convolution<T, convolution_ways_of(K)>;
    constexpr bool by_rows = may_be_by_rows(K.kernel, K.stride);
    if constexpr (by_rows && (Differs || !by_threes))
      ways.quick[5] = &averages_by_rows<T, known_stride(K)>;
    // What is refused by rows of so many is seldom met.
    if constexpr (by_rows)
      ways.any = &plain_averages<T>;
    else
      ways.any = &averages_of_any<T>;
  }
  return ways;
}
template <class T, window_kind K>
constexpr average_ways<T> spread_ways_of() {
  average_ways<T> ways{};
  if constexpr (is_two_by_two(K)) ways.quick[0] = &spread_by_halving<T>;
  if constexpr (!always_halves(K)) {
    if constexpr (may_be_global(K)) ways.quick[1] = &spread_to_planes<T>;
    constexpr bool by_threes = is_three_by_three(K) && K.padding[2] == 1 && K.stride[1] == 1;
    constexpr bool by_rows = may_be_by_rows(K.kernel, K.stride);
    if constexpr (by_threes) {
      ways.quick[2] = &spread_to_threes<T>;
    } else {
      ways.quick[3] = &spread_by_lanes<T>;
      if constexpr (may_be_by_convolution(K.kernel, K.stride, 0))
        ways.quick[4] = &spread_by_convolution<T, convolution_ways_of(K)>;
      if constexpr (by_rows) ways.quick[5] = &spread_by_rows<T, known_stride(K)>;
    }
    if constexpr (by_rows)
      ways.any = &plain_spread<T>;
    else
      ways.any = &spread_to_any<T>;
  }
  return ways;
}

template <class T, window_kind K, bool Differs>
inline constexpr average_ways<T> average_ways_for = average_ways_of<T, K, Differs>();
template <class T, window_kind K>
inline constexpr average_ways<T> spread_ways_for = spread_ways_of<T, K>();

}  // namespace ikebana::cpu::detail
