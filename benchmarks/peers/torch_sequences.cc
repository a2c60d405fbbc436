#include "benchmarks/sequence_peers.hpp"

#ifdef IKEBANA_HAS_TORCH

#include <torch/torch.h>

namespace bench {
namespace {

namespace nn = torch::nn;

/// `call` computes the output of `module` for x.
template <class Module>
timed run(const sequence_problem& p, Module module, const torch::Tensor& x, auto call) {
  if (!p.trains) {
    module->eval();
    return repeated([=]() mutable {
      const torch::NoGradGuard inference;
      call(module, x);
    });
  }
  auto optimizer = std::make_shared<torch::optim::SGD>(module->parameters(), 0.01);
  const auto target = torch::zeros_like(x);
  return repeated([=]() mutable {
    optimizer->zero_grad();
    torch::mse_loss(call(module, x), target).backward();
    optimizer->step();
  });
}

timed prepare(const sequence_problem& p) {
  float* data = const_cast<float*>(p.x);
  // Its attention is faster with the sequence first.
  const auto x = torch::from_blob(data, {p.length, p.batch, p.width});
  const auto first = [](auto& module, const torch::Tensor& in) { return std::get<0>(module(in)); };
  switch (p.what) {
    case sequence::attention:
      return run(p, nn::MultiheadAttention(p.width, p.heads), x, [](auto& m, const auto& in) {
        return std::get<0>(m(in, in, in, at::Tensor{}, false));
      });
    case sequence::encoder_layer:
      return run(p,
                 nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(p.width, p.heads)
                                                 .dim_feedforward(4 * p.width)
                                                 .dropout(0)),
                 x, [](auto& m, const auto& in) { return m(in); });
    case sequence::rnn:
      return run(p, nn::RNN(p.width, p.width), x, first);
    case sequence::lstm:
      return run(p, nn::LSTM(p.width, p.width), x, first);
    default:
      return run(p, nn::GRU(p.width, p.width), x, first);
  }
}

}  // namespace

sequence_peer torch_sequences() { return {"libtorch", TORCH_VERSION, "libtorch-dev", {prepare}}; }

}  // namespace bench

#else

bench::sequence_peer bench::torch_sequences() {
  return absent<sequence_peer>("libtorch", "libtorch-dev");
}

#endif
