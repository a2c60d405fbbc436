#include "benchmarks/network_peers.hpp"

#ifdef IKEBANA_HAS_TORCH

#include <torch/torch.h>

namespace bench {
namespace {

namespace nn = torch::nn;

nn::Sequential make_mlp() {
  return nn::Sequential{nn::Linear(784, 128), nn::ReLU(), nn::Linear(128, 64), nn::ReLU(),
                        nn::Linear(64, 10)};
}

nn::Sequential make_lenet() {
  return nn::Sequential{nn::Conv2d(nn::Conv2dOptions(1, 6, 5).padding(2)),
                        nn::ReLU(),
                        nn::MaxPool2d(2),
                        nn::Conv2d(nn::Conv2dOptions(6, 16, 5)),
                        nn::ReLU(),
                        nn::MaxPool2d(2),
                        nn::Flatten(),
                        nn::Linear(400, 120),
                        nn::ReLU(),
                        nn::Linear(120, 84),
                        nn::ReLU(),
                        nn::Linear(84, 10)};
}

nn::Sequential make_transformer() {
  return nn::Sequential{nn::TransformerEncoderLayer(
      nn::TransformerEncoderLayerOptions(64, 4).dim_feedforward(256).dropout(0))};
}

nn::Sequential make_dense() {
  return nn::Sequential{nn::Linear(1, 8), nn::Tanh(), nn::Linear(8, 8), nn::Tanh(),
                        nn::Linear(8, 1)};
}

timed prepare_lstm(const network_problem& p) {
  nn::LSTM lstm(nn::LSTMOptions(1, 16));
  nn::Linear dense(16, 1);
  const auto x = torch::from_blob(const_cast<float*>(p.x), {1, 1, 1});
  auto state = std::make_tuple(torch::zeros({1, 1, 16}), torch::zeros({1, 1, 16}));
  return repeated([=]() mutable {
    const torch::NoGradGuard inference;
    auto [y, next] = lstm(x, state);
    state = next;
    dense(y);
  });
}

timed prepare(const network_problem& p) {
  if (p.network == net::lstm) return prepare_lstm(p);
  nn::Sequential model = p.network == net::mlp           ? make_mlp()
                         : p.network == net::lenet       ? make_lenet()
                         : p.network == net::transformer ? make_transformer()
                                                         : make_dense();
  const std::vector<std::int64_t> extents =
      p.network == net::mlp           ? std::vector<std::int64_t>{p.batch, 784}
      : p.network == net::lenet       ? std::vector<std::int64_t>{p.batch, 1, 28, 28}
      : p.network == net::transformer ? std::vector<std::int64_t>{32, p.batch, 64}
                                      : std::vector<std::int64_t>{p.batch, 1};
  const auto x = torch::from_blob(const_cast<float*>(p.x), extents);
  if (p.what == use::inference) {
    model->eval();
    return repeated([=]() mutable {
      const torch::NoGradGuard inference;
      model->forward(x);
    });
  }
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  if (p.what == use::adam)
    optimizer = std::make_shared<torch::optim::Adam>(model->parameters(), 1e-3);
  else
    optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), 0.01);
  const auto target = p.network == net::transformer
                          ? torch::zeros(extents)
                          : torch::arange(p.batch, torch::kLong).remainder(10);
  return repeated([=]() mutable {
    optimizer->zero_grad();
    const auto y = model->forward(x);
    const auto loss = p.network == net::transformer ? torch::mse_loss(y, target)
                                                    : torch::cross_entropy_loss(y, target);
    loss.backward();
    optimizer->step();
  });
}

}  // namespace

network_peer torch_networks() { return {"libtorch", TORCH_VERSION, "libtorch-dev", {prepare}}; }

}  // namespace bench

#else

bench::network_peer bench::torch_networks() {
  return absent<network_peer>("libtorch", "libtorch-dev");
}

#endif
