// Built twice, as eigen_gemm.cc is.
#include "benchmarks/network_peers.hpp"

#ifdef IKEBANA_HAS_RTNEURAL

#define RTNEURAL_DEFAULT_ALIGNMENT 32
#define RTNEURAL_USE_EIGEN 1
#include <RTNeural/RTNeural.h>

namespace bench {
namespace {

using mlp =
    RTNeural::ModelT<float, 784, 10, RTNeural::DenseT<float, 784, 128>,
                     RTNeural::ReLuActivationT<float, 128>, RTNeural::DenseT<float, 128, 64>,
                     RTNeural::ReLuActivationT<float, 64>, RTNeural::DenseT<float, 64, 10>>;
using dense = RTNeural::ModelT<float, 1, 1, RTNeural::DenseT<float, 1, 8>,
                               RTNeural::TanhActivationT<float, 8>, RTNeural::DenseT<float, 8, 8>,
                               RTNeural::TanhActivationT<float, 8>, RTNeural::DenseT<float, 8, 1>>;
using lstm = RTNeural::ModelT<float, 1, 1, RTNeural::LSTMLayerT<float, 1, 16>,
                              RTNeural::DenseT<float, 16, 1>>;

std::vector<std::vector<float>> random_rows(std::size_t rows, std::size_t columns) {
  const auto values = random_array<float>(static_cast<dim_t>(rows * columns), 1, -0.3F, 0.3F);
  std::vector<std::vector<float>> all(rows, std::vector<float>(columns));
  dim_t next = 0;
  for (auto& row : all)
    for (float& value : row) value = values[next++];
  return all;
}

/// Zero weights would make every value the same.
template <std::size_t I, std::size_t In, std::size_t Out>
void draw_dense(auto& model) {
  model.template get<I>().setWeights(random_rows(Out, In));
  std::vector<float> bias(Out, 0.1F);
  model.template get<I>().setBias(bias.data());
}

template <class Model>
timed run(const network_problem& p, const std::shared_ptr<Model>& model) {
  model->reset();
  return repeated([model, x = p.x] {
    volatile float y = model->forward(x);
    static_cast<void>(y);
  });
}

timed prepare(const network_problem& p) {
  if (p.batch != 1 || p.what != use::inference) return {};
  if (p.network == net::mlp) {
    auto model = std::make_shared<mlp>();
    draw_dense<0, 784, 128>(*model), draw_dense<2, 128, 64>(*model), draw_dense<4, 64, 10>(*model);
    return run(p, model);
  }
  if (p.network == net::dense) {
    auto model = std::make_shared<dense>();
    draw_dense<0, 1, 8>(*model), draw_dense<2, 8, 8>(*model), draw_dense<4, 8, 1>(*model);
    return run(p, model);
  }
  if (p.network == net::lstm) {
    auto model = std::make_shared<lstm>();
    model->get<0>().setWVals(random_rows(1, 64));
    model->get<0>().setUVals(random_rows(16, 64));
    std::vector<float> bias(64, 0.1F);
    model->get<0>().setBVals(bias);
    draw_dense<1, 16, 1>(*model);
    return run(p, model);
  }
  return {};
}

}  // namespace

network_peer IKEBANA_PEER_BUILD() {
  return {"RTNeural", "with Eigen", "IKEBANA_RTNEURAL_INCLUDE", {prepare}};
}

}  // namespace bench

#else

bench::network_peer bench::IKEBANA_PEER_BUILD() {
  return absent<network_peer>("RTNeural", "IKEBANA_RTNEURAL_INCLUDE");
}

#endif
