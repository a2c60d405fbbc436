// A multilayer perceptron written by hand with Eigen. Built twice, like eigen_gemm.cc.
#include "benchmarks/network_peers.hpp"

#ifdef IKEBANA_HAS_EIGEN

#include <Eigen/Core>
#include <cmath>

namespace bench {
namespace {

using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using row = Eigen::Matrix<float, 1, Eigen::Dynamic>;

/// y = x w + b, with the weights as (in, out), and the memory for training.
struct layer {
  matrix w, y, dy, dw, m, v;
  row b, db, mb, vb;

  layer(dim_t in, dim_t out, dim_t batch)
      : w(matrix::Random(in, out) / std::sqrt(static_cast<float>(in))),
        y(batch, out),
        dy(batch, out),
        dw(in, out),
        m(matrix::Zero(in, out)),
        v(matrix::Zero(in, out)),
        b(row::Constant(out, 0.1F)),
        db(out),
        mb(row::Zero(out)),
        vb(row::Zero(out)) {}

  void forward(const auto& x, bool rectified) {
    y.noalias() = x * w;
    if (rectified)
      y = (y.rowwise() + b).cwiseMax(0.0F);
    else
      y.rowwise() += b;
  }
  void backward(const auto& x) {
    dw.noalias() = x.transpose() * dy;
    db.noalias() = dy.colwise().sum();
  }
  void to(layer& below) const {
    below.dy.noalias() = dy * w.transpose();
    below.dy.array() *= (below.y.array() > 0).cast<float>();
  }
  void update(use what, float step) {
    if (what == use::sgd) {
      w -= 0.01F * dw;
      b -= 0.01F * db;
      return;
    }
    adam(w.reshaped<Eigen::RowMajor>(), dw.reshaped<Eigen::RowMajor>(),
         m.reshaped<Eigen::RowMajor>(), v.reshaped<Eigen::RowMajor>(), step);
    adam(b, db, mb, vb, step);
  }
  static void adam(auto&& w, const auto& g, auto&& m, auto&& v, float step) {
    const float a = 1 / (1 - std::pow(0.9F, step)), c = 1 / (1 - std::pow(0.999F, step));
    m = 0.9F * m + 0.1F * g;
    v.array() = 0.999F * v.array() + 0.001F * g.array().square();
    w.array() -= 1e-3F * a * m.array() / ((v.array() * c).sqrt() + 1e-8F);
  }
};

struct mlp {
  layer one, two, three;
  float step = 0;

  explicit mlp(dim_t batch) : one(784, 128, batch), two(128, 64, batch), three(64, 10, batch) {}

  void forward(const auto& x) {
    one.forward(x, true);
    two.forward(one.y, true);
    three.forward(two.y, false);
  }
  float train(const auto& x, use what) {
    forward(x);
    float loss = 0;
    const float part = 1 / static_cast<float>(x.rows());
    for (Eigen::Index i = 0; i < x.rows(); ++i) {
      auto p = three.dy.row(i);
      p = (three.y.row(i).array() - three.y.row(i).maxCoeff()).exp();
      p *= 1 / p.sum();
      loss -= std::log(p(i % 10));
      p(i % 10) -= 1;
      p *= part;
    }
    three.backward(two.y);
    three.to(two);
    two.backward(one.y);
    two.to(one);
    one.backward(x);
    ++step;
    one.update(what, step), two.update(what, step), three.update(what, step);
    return loss * part;
  }
};

timed prepare(const network_problem& p) {
  if (p.network != net::mlp) return {};
  auto model = std::make_shared<mlp>(p.batch);
  if (p.batch == 1 && p.what == use::inference)
    return repeated([=, x = Eigen::Map<const row>(p.x, 784)] { model->forward(x); });
  const Eigen::Map<const matrix> x(p.x, p.batch, 784);
  if (p.what == use::inference) return repeated([=] { model->forward(x); });
  return repeated([=] {
    volatile float loss = model->train(x, p.what);
    static_cast<void>(loss);
  });
}

}  // namespace

network_peer IKEBANA_PEER_BUILD() {
  return {"Eigen by hand",
          std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
              std::to_string(EIGEN_MINOR_VERSION),
          "libeigen3-dev",
          {prepare}};
}

}  // namespace bench

#else

bench::network_peer bench::IKEBANA_PEER_BUILD() {
  return absent<network_peer>("Eigen by hand", "libeigen3-dev");
}

#endif
