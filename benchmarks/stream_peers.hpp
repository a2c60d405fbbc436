#pragma once

#include "benchmarks/contest.hpp"

namespace bench {

enum class stream : unsigned char {
  dense,
  conv1d,  ///< Causal, kernel 3.
  gru,
  lstm,
  mixed,  ///< 1 - dense 8 - tanh - conv1d 4, kernel 3, dilation 2 - tanh - GRU 8 - dense 1
};

/// One sample of a stream of `width` values through a module with as many outputs, in float; the
/// state is that of the samples before.
struct stream_problem {
  stream what;
  dim_t width;
  const float* x = nullptr;
  float* result = nullptr;  ///< Unused: each contestant initialises its own weights.
};

using stream_peer = peer<stream_problem>;

/// Calls f with std::integral_constant<int, width> for the widths of the problems.
template <class F>
timed with_width(dim_t width, F f) {
  switch (width) {
    case 8:
      return f(std::integral_constant<int, 8>{});
    case 16:
      return f(std::integral_constant<int, 16>{});
    case 32:
      return f(std::integral_constant<int, 32>{});
    default:
      return f(std::integral_constant<int, 64>{});
  }
}

stream_peer torch_streams();
stream_peer onednn_streams();
stream_peer rtneural_native_streams();
stream_peer rtneural_avx2_streams();
stream_peer eigen_native_streams();
stream_peer eigen_avx2_streams();
stream_peer loops_native_streams();
stream_peer loops_avx2_streams();

}  // namespace bench
