// Built twice, as eigen_gemm.cc is.
#include "benchmarks/array_peers.hpp"

#ifdef IKEBANA_HAS_EIGEN

#include <Eigen/Core>
#include <cmath>
#include <unsupported/Eigen/SpecialFunctions>

namespace bench {
namespace {

using array = Eigen::Map<Eigen::ArrayXf, Eigen::Aligned64>;
using constant_array = Eigen::Map<const Eigen::ArrayXf, Eigen::Aligned64>;
using row = Eigen::Map<Eigen::ArrayXf>;
using constant_row = Eigen::Map<const Eigen::ArrayXf>;

timed each_row(const array_problem& p, auto f) {
  return repeated([=] {
    for (dim_t i = 0; i < p.rows; ++i)
      f(constant_row(p.x + i * p.n, p.n), row(p.result + i * p.n, p.n), i);
  });
}

timed prepare_rows(const array_problem& p) {
  switch (p.what) {
    case op::softmax:
      return each_row(p, [](auto x, auto y, dim_t) {
        y = (x - x.maxCoeff()).exp();
        y *= 1 / y.sum();
      });
    case op::log_softmax:
      return each_row(p, [](auto x, auto y, dim_t) {
        const float most = x.maxCoeff();
        y = x - (most + std::log((x - most).exp().sum()));
      });
    case op::softmax_backward:
      return each_row(p, [=](auto, auto dx, dim_t i) {
        const constant_row y(p.y + i * p.n, p.n), dy(p.dy + i * p.n, p.n);
        dx = y * (dy - (y * dy).sum());
      });
    case op::layer_norm:
      return each_row(p, [=](auto x, auto y, dim_t) {
        const float mean = x.mean();
        const float scale = 1 / std::sqrt((x - mean).square().mean() + 1e-5F);
        y = (x - mean) * scale * constant_row(p.gamma, p.n) + constant_row(p.beta, p.n);
      });
    default:
      return {};
  }
}

timed prepare_updates(const array_problem& p) {
  const constant_array g(p.dy, p.size());
  array w(p.result, p.size());
  w = constant_array(p.x, p.size());
  auto m = std::make_shared<Eigen::ArrayXf>(Eigen::ArrayXf::Zero(p.size()));
  auto v = std::make_shared<Eigen::ArrayXf>(Eigen::ArrayXf::Zero(p.size()));
  if (p.what == op::sgd) return repeated([=]() mutable { w -= 0.01F * g; });
  if (p.what == op::momentum)
    return repeated([=]() mutable {
      *m = 0.9F * *m + g;
      w -= 0.01F * *m;
    });
  return repeated([=]() mutable {
    // Piecewise, so that the three statements share L1.
    constexpr dim_t piece = 1024;
    for (dim_t i = 0; i < p.size(); i += piece) {
      const dim_t count = std::min(piece, p.size() - i);
      auto gi = g.segment(i, count);
      auto mi = m->segment(i, count), vi = v->segment(i, count);
      mi = 0.9F * mi + 0.1F * gi;
      vi = 0.999F * vi + 0.001F * gi.square();
      w.segment(i, count) -= 1e-5F * mi / (vi.sqrt() * 1.0F + 1e-8F);
    }
  });
}

timed prepare(const array_problem& p) {
  const constant_array x(p.x, p.size()), y(p.y, p.size()), dy(p.dy, p.size());
  const auto assign = [&](auto expression) {
    return repeated([=] { array(p.result, p.size()) = expression; });
  };
  switch (p.what) {
    case op::relu:
      return assign(x.max(0.0F));
    case op::tanh:
      return assign(x.tanh());
    case op::sigmoid:
      return assign(x.logistic());
    case op::exp:
      return assign(x.exp());
    case op::log:
      return assign(x.log());
    case op::erf:
      return assign(x.erf());
    case op::gelu:
      return assign(x * (0.5F + 0.5F * (x * 0.70710678F).erf()));
    case op::gelu_tanh:
      return assign(0.5F * x * (1 + (0.79788456F * (x + 0.044715F * x * x * x)).tanh()));
    case op::silu:
      return assign(x * x.logistic());
    case op::add:
      return assign(x + dy);
    case op::multiply:
      return assign(x * dy);
    case op::relu_backward:
      return assign((y > 0).select(dy, dy * 0.0F));
    case op::tanh_backward:
      return assign(dy * (1 - y * y));
    case op::sigmoid_backward:
      return assign(dy * y * (1 - y));
    case op::sum:
      return repeated([=] { *p.result = x.sum(); });
    case op::dot:
      return repeated([=] { *p.result = x.matrix().dot(dy.matrix()); });
    case op::column_sums:
      return repeated([=] {
        row sums(p.result, p.n);
        sums = constant_row(p.x, p.n);
        for (dim_t i = 1; i < p.rows; ++i) sums += constant_row(p.x + i * p.n, p.n);
      });
    case op::sgd:
    case op::momentum:
    case op::adam:
      return prepare_updates(p);
    default:
      return prepare_rows(p);
  }
}

}  // namespace

array_peer IKEBANA_PEER_BUILD() {
  return {"Eigen",
          std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
              std::to_string(EIGEN_MINOR_VERSION),
          "libeigen3-dev",
          {prepare}};
}

}  // namespace bench

#else

bench::array_peer bench::IKEBANA_PEER_BUILD() {
  return absent<array_peer>("Eigen", "libeigen3-dev");
}

#endif
