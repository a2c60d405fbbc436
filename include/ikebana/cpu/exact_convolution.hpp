#pragma once

#include <atomic>

#include "ikebana/core/language.hpp"

namespace ikebana {

namespace detail {
inline std::atomic<bool> convolves_exactly{false};
}  // namespace detail

/// Whether convolutions of float are summed product by product, in all threads. By default those of
/// 3x3 with many channels are not, where that is faster, but by Winograd's F(4x4, 3x3) (Lavin and
/// Gray, Fast Algorithms for Convolutional Neural Networks, 2016): rounding errors are 3 to 8 times
/// larger (2 to 3 times in the gradient of the weights), and what is not finite spreads over a tile
/// of 4x4 (over all 9 weights). The error is relative to the largest numbers that a tile reads,
/// those outside of a result's receptive field too: a result beside a large input may lose all its
/// digits.
inline void set_exact_convolution(bool exact) {
  detail::convolves_exactly.store(exact, std::memory_order_relaxed);
}
/// What it was set to last; false unless set.
inline bool exact_convolution() {
  return detail::convolves_exactly.load(std::memory_order_relaxed);
}

}  // namespace ikebana
