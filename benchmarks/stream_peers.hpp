#pragma once

#include <memory>
#include <tuple>
#include <type_traits>

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

/// Layers that are called one after the other, each with the output of the one before.
template <class... Layers>
timed run_layers(const stream_problem& p) {
  auto all = std::make_shared<std::tuple<Layers...>>();
  return repeated([all, x = p.x] {
    const float* y = x;
    std::apply([&](auto&... layer) { (..., (y = layer(y))); }, *all);
  });
}

/// The problem by layers written by hand, of types that are local to the peer.
template <template <int, int> class Dense, template <int> class Tanh,
          template <int, int, int, int> class Conv, template <int, int> class Gru,
          template <int, int> class Lstm>
timed prepared_layers(const stream_problem& p) {
  if (p.what == stream::mixed)
    return run_layers<Dense<1, 8>, Tanh<8>, Conv<8, 4, 3, 2>, Tanh<4>, Gru<4, 8>, Dense<8, 1>>(p);
  return with_width(p.width, [&]<int N>(std::integral_constant<int, N>) {
    switch (p.what) {
      case stream::dense:
        return run_layers<Dense<N, N>>(p);
      case stream::conv1d:
        return run_layers<Conv<N, N, 3, 1>>(p);
      case stream::gru:
        return run_layers<Gru<N, N>>(p);
      default:
        return run_layers<Lstm<N, N>>(p);
    }
  });
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
