// What one would write by hand, without a library. Built twice, as eigen_gemm.cc is.
#include <array>
#include <cmath>

#include "benchmarks/stream_peers.hpp"

namespace bench {
namespace {

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

/// y += W x; the columns of W are contiguous, so that compilers make vectors of the outputs.
template <int In, int Out>
struct matrix {
  alignas(64) std::array<float, In * Out> w;
  matrix() {
    const auto values = random_array<float>(In * Out, 1, -0.3F, 0.3F);
    for (dim_t i = 0; i < In * Out; ++i) w[static_cast<std::size_t>(i)] = values[i];
  }
  void add(const float* x, float* y) const {
    for (int i = 0; i < In; ++i)
      for (int o = 0; o < Out; ++o) y[o] += w[i * Out + o] * x[i];
  }
};

template <int In, int Out>
struct dense {
  static constexpr int out = Out;
  matrix<In, Out> w;
  alignas(64) std::array<float, Out> y;
  const float* operator()(const float* x) {
    y.fill(0.1F);
    w.add(x, y.data());
    return y.data();
  }
};

template <int Width>
struct tanh_of {
  alignas(64) std::array<float, Width> y;
  const float* operator()(const float* x) {
    for (int i = 0; i < Width; ++i) y[i] = std::tanh(x[i]);
    return y.data();
  }
};

template <int In, int Out, int Kernel, int Dilation>
struct conv1d {
  static constexpr int length = (Kernel - 1) * Dilation + 1;
  std::array<matrix<In, Out>, Kernel> w;
  alignas(64) std::array<float, In * length> past{};
  alignas(64) std::array<float, Out> y;
  int now = 0;
  const float* operator()(const float* x) {
    for (int i = 0; i < In; ++i) past[now * In + i] = x[i];
    y.fill(0.1F);
    for (int k = 0; k < Kernel; ++k)
      w[k].add(past.data() + (now + length - k * Dilation) % length * In, y.data());
    now = now + 1 == length ? 0 : now + 1;
    return y.data();
  }
};

template <int In, int Out>
struct gru {
  matrix<In, 3 * Out> w;
  matrix<Out, 3 * Out> u;
  alignas(64) std::array<float, 3 * Out> a, b;
  alignas(64) std::array<float, Out> h{};
  const float* operator()(const float* x) {
    a.fill(0.1F), b.fill(0.1F);
    w.add(x, a.data());
    u.add(h.data(), b.data());
    for (int i = 0; i < Out; ++i) {
      const float r = sigmoid(a[i] + b[i]), z = sigmoid(a[Out + i] + b[Out + i]);
      const float n = std::tanh(a[2 * Out + i] + r * b[2 * Out + i]);
      h[i] = n + z * (h[i] - n);
    }
    return h.data();
  }
};

template <int In, int Out>
struct lstm {
  matrix<In, 4 * Out> w;
  matrix<Out, 4 * Out> u;
  alignas(64) std::array<float, 4 * Out> a;
  alignas(64) std::array<float, Out> h{}, c{};
  const float* operator()(const float* x) {
    a.fill(0.1F);
    w.add(x, a.data());
    u.add(h.data(), a.data());
    for (int i = 0; i < Out; ++i) {
      c[i] = sigmoid(a[Out + i]) * c[i] + sigmoid(a[i]) * std::tanh(a[2 * Out + i]);
      h[i] = sigmoid(a[3 * Out + i]) * std::tanh(c[i]);
    }
    return h.data();
  }
};

timed prepare(const stream_problem& p) {
  return prepared_layers<dense, tanh_of, conv1d, gru, lstm>(p);
}

}  // namespace

stream_peer IKEBANA_PEER_BUILD() { return {"loops by hand", "-O3", "", {prepare}}; }

}  // namespace bench
