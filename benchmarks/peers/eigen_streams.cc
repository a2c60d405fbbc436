// Modules of a stream written by hand with Eigen. Built twice, like eigen_gemm.cc.
#include "benchmarks/stream_peers.hpp"

#ifdef IKEBANA_HAS_EIGEN

#include <Eigen/Core>

namespace bench {
namespace {

template <int Rows, int Columns = 1>
using matrix = Eigen::Matrix<float, Rows, Columns>;

template <int Width>
using input = Eigen::Map<const matrix<Width>>;

template <int In, int Out>
struct dense {
  matrix<Out, In> w = 0.3F * matrix<Out, In>::Random();
  matrix<Out> b = matrix<Out>::Constant(0.1F), y;
  const float* operator()(const float* x) {
    y.noalias() = w * input<In>(x) + b;
    return y.data();
  }
};

template <int Width>
struct tanh_of {
  matrix<Width> y;
  const float* operator()(const float* x) {
    y = input<Width>(x).array().tanh();
    return y.data();
  }
};

/// The taps are a ring of columns, multiplied one by one.
template <int In, int Out, int Kernel, int Dilation>
struct conv1d {
  static constexpr int length = (Kernel - 1) * Dilation + 1;
  std::array<matrix<Out, In>, Kernel> w;
  matrix<In, length> past = matrix<In, length>::Zero();
  matrix<Out> y;
  int now = 0;
  conv1d() { w.fill(0.3F * matrix<Out, In>::Random()); }
  const float* operator()(const float* x) {
    past.col(now) = input<In>(x);
    y.setConstant(0.1F);
    for (int k = 0; k < Kernel; ++k)
      y.noalias() += w[k] * past.col((now + length - k * Dilation) % length);
    now = now + 1 == length ? 0 : now + 1;
    return y.data();
  }
};

template <int In, int Out>
struct gru {
  matrix<3 * Out, In> w = 0.3F * matrix<3 * Out, In>::Random();
  matrix<3 * Out, Out> u = 0.3F * matrix<3 * Out, Out>::Random();
  matrix<3 * Out> a, b, bias = matrix<3 * Out>::Constant(0.1F);
  matrix<Out> h = matrix<Out>::Zero(), n;
  const float* operator()(const float* x) {
    a.noalias() = w * input<In>(x) + bias;
    b.noalias() = u * h + bias;
    a.template head<2 * Out>() =
        (a.template head<2 * Out>() + b.template head<2 * Out>()).array().logistic();
    n = (a.template tail<Out>().array() +
         a.template head<Out>().array() * b.template tail<Out>().array())
            .tanh();
    h = n.array() + a.template segment<Out>(Out).array() * (h - n).array();
    return h.data();
  }
};

template <int In, int Out>
struct lstm {
  matrix<4 * Out, In> w = 0.3F * matrix<4 * Out, In>::Random();
  matrix<4 * Out, Out> u = 0.3F * matrix<4 * Out, Out>::Random();
  matrix<4 * Out> a, bias = matrix<4 * Out>::Constant(0.1F);
  matrix<Out> h = matrix<Out>::Zero(), c = matrix<Out>::Zero();
  // The gates are in the order input, forget, output, candidate.
  const float* operator()(const float* x) {
    a.noalias() = w * input<In>(x) + bias;
    a.noalias() += u * h;
    a.template head<3 * Out>() = a.template head<3 * Out>().array().logistic();
    c = a.template segment<Out>(Out).array() * c.array() +
        a.template head<Out>().array() * a.template tail<Out>().array().tanh();
    h = a.template segment<Out>(2 * Out).array() * c.array().tanh();
    return h.data();
  }
};

timed prepare(const stream_problem& p) {
  return prepared_layers<dense, tanh_of, conv1d, gru, lstm>(p);
}

}  // namespace

stream_peer IKEBANA_PEER_BUILD() {
  return {"Eigen by hand",
          std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
              std::to_string(EIGEN_MINOR_VERSION),
          "libeigen3-dev",
          {prepare}};
}

}  // namespace bench

#else

bench::stream_peer bench::IKEBANA_PEER_BUILD() {
  return absent<stream_peer>("Eigen by hand", "libeigen3-dev");
}

#endif
