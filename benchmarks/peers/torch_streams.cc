#include "benchmarks/stream_peers.hpp"

#ifdef IKEBANA_HAS_TORCH

#include <torch/torch.h>

namespace bench {
namespace {

namespace nn = torch::nn;

template <class Module>
timed run_recurrent(Module module, const torch::Tensor& x, dim_t width) {
  auto h = torch::zeros({1, 1, width});
  return repeated([=]() mutable {
    const torch::NoGradGuard inference;
    h = std::get<1>(module(x, h));
  });
}
timed run_recurrent(nn::LSTM module, const torch::Tensor& x, dim_t width) {
  auto state = std::make_tuple(torch::zeros({1, 1, width}), torch::zeros({1, 1, width}));
  return repeated([=]() mutable {
    const torch::NoGradGuard inference;
    state = std::get<1>(module(x, state));
  });
}

/// The convolution reads the last samples, which a program would have to keep.
timed run_mixed(const stream_problem& p) {
  nn::Linear first(1, 8), last(8, 1);
  nn::Conv1d conv(nn::Conv1dOptions(8, 4, 3).dilation(2));
  nn::GRU gru(4, 8);
  const auto x = torch::from_blob(const_cast<float*>(p.x), {1, 1});
  auto past = torch::zeros({1, 8, 5});
  auto h = torch::zeros({1, 1, 8});
  return repeated([=]() mutable {
    const torch::NoGradGuard inference;
    past.select(2, 4).copy_(torch::tanh(first(x)));
    const auto [y, next] = gru(torch::tanh(conv(past)).view({1, 1, 4}), h);
    h = next;
    last(y);
  });
}

timed prepare(const stream_problem& p) {
  float* const data = const_cast<float*>(p.x);
  const dim_t n = p.width;
  switch (p.what) {
    case stream::dense:
      return repeated([m = nn::Linear(n, n), x = torch::from_blob(data, {1, n})]() mutable {
        const torch::NoGradGuard inference;
        m(x);
      });
    case stream::conv1d:
      return repeated(
          [m = nn::Conv1d(nn::Conv1dOptions(n, n, 3)), x = torch::rand({1, n, 3})]() mutable {
            const torch::NoGradGuard inference;
            m(x);
          });
    case stream::gru:
      return run_recurrent(nn::GRU(n, n), torch::from_blob(data, {1, 1, n}), n);
    case stream::lstm:
      return run_recurrent(nn::LSTM(n, n), torch::from_blob(data, {1, 1, n}), n);
    default:
      return run_mixed(p);
  }
}

}  // namespace

stream_peer torch_streams() { return {"libtorch", TORCH_VERSION, "libtorch-dev", {prepare}}; }

}  // namespace bench

#else

bench::stream_peer bench::torch_streams() {
  return absent<stream_peer>("libtorch", "libtorch-dev");
}

#endif
