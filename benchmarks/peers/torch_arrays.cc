#include "benchmarks/array_peers.hpp"

#ifdef IKEBANA_HAS_TORCH

#include <torch/torch.h>

namespace bench {
namespace {

timed without_gradients(auto f) {
  return repeated([=]() mutable {
    const c10::InferenceMode inference;
    f();
  });
}

timed update(const array_problem& p) {
  // For comparison, the optimizer must update the result in place, so its parameter is a view of
  // it.
  auto w = at::from_blob(p.result, {p.size()});
  std::copy_n(p.x, p.size(), p.result);
  w.set_requires_grad(true);
  w.mutable_grad() = at::from_blob(const_cast<float*>(p.dy), {p.size()});
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  const std::vector<at::Tensor> all{w};
  if (p.what == op::adam)
    optimizer = std::make_shared<torch::optim::Adam>(all, torch::optim::AdamOptions(1e-5));
  else
    optimizer = std::make_shared<torch::optim::SGD>(
        all, torch::optim::SGDOptions(0.01).momentum(p.what == op::momentum ? 0.9 : 0));
  return repeated([=] { optimizer->step(); });
}

timed prepare(const array_problem& p) {
  const auto view = [&](const float* data, at::IntArrayRef sizes) {
    return data == nullptr ? at::Tensor{} : at::from_blob(const_cast<float*>(data), sizes);
  };
  const at::Tensor x = view(p.x, {p.rows, p.n}), y = view(p.y, {p.rows, p.n}),
                   dy = view(p.dy, {p.rows, p.n}), gamma = view(p.gamma, {p.n}),
                   beta = view(p.beta, {p.n});
  at::Tensor to = view(p.result, {p.rows, p.n});
  switch (p.what) {
    case op::relu:
      return without_gradients([=]() mutable { at::clamp_min_out(to, x, 0); });
    case op::tanh:
      return without_gradients([=]() mutable { at::tanh_out(to, x); });
    case op::sigmoid:
      return without_gradients([=]() mutable { at::sigmoid_out(to, x); });
    case op::exp:
      return without_gradients([=]() mutable { at::exp_out(to, x); });
    case op::log:
      return without_gradients([=]() mutable { at::log_out(to, x); });
    case op::erf:
      return without_gradients([=]() mutable { at::erf_out(to, x); });
    case op::gelu:
      return without_gradients([=]() mutable { at::gelu_out(to, x); });
    case op::gelu_tanh:
      return without_gradients([=]() mutable { at::gelu_out(to, x, "tanh"); });
    case op::silu:
      return without_gradients([=]() mutable { at::silu_out(to, x); });
    case op::add:
      return without_gradients([=]() mutable { at::add_out(to, x, dy); });
    case op::multiply:
      return without_gradients([=]() mutable { at::mul_out(to, x, dy); });
    case op::relu_backward:
      return without_gradients([=]() mutable { at::threshold_backward_out(to, dy, y, 0); });
    case op::tanh_backward:
      return without_gradients([=]() mutable { at::tanh_backward_out(to, dy, y); });
    case op::sigmoid_backward:
      return without_gradients([=]() mutable { at::sigmoid_backward_out(to, dy, y); });
    case op::gelu_backward:
      return without_gradients([=]() mutable { at::gelu_backward_out(to, dy, x); });
    case op::sum:
      return without_gradients([=]() mutable { *p.result = at::sum(x).item<float>(); });
    case op::dot:
      return without_gradients(
          [=]() mutable { *p.result = at::dot(x.view(-1), dy.view(-1)).item<float>(); });
    case op::column_sums:
      return without_gradients([=, sums = view(p.result, {p.n})]() mutable {
        at::sum_out(sums, x, at::IntArrayRef{0});
      });
    case op::softmax:
      return without_gradients([=]() mutable { at::_softmax_out(to, x, 1, false); });
    case op::log_softmax:
      return without_gradients([=]() mutable { at::_log_softmax_out(to, x, 1, false); });
    case op::softmax_backward:
      return without_gradients(
          [=]() mutable { at::_softmax_backward_data_out(to, dy, y, 1, at::kFloat); });
    case op::layer_norm:
      return without_gradients(
          [=, mean = at::empty({p.rows, 1}), scale = at::empty({p.rows, 1})]() mutable {
            at::native_layer_norm_out(to, mean, scale, x, {p.n}, gamma, beta, 1e-5);
          });
    case op::layer_norm_backward: {
      const auto [out, mean, scale] = at::native_layer_norm(x, {p.n}, gamma, beta, 1e-5);
      const auto run = [=, mean = mean, scale = scale] {
        return at::native_layer_norm_backward(dy, x, {p.n}, mean, scale, gamma, beta,
                                              {true, true, true});
      };
      to.copy_(std::get<0>(run()));  // For comparison only.
      return without_gradients(run);
    }
    default:
      return update(p);
  }
}

}  // namespace

array_peer torch_arrays() { return {"libtorch", TORCH_VERSION, "libtorch-dev", {prepare}}; }

}  // namespace bench

#else

bench::array_peer bench::torch_arrays() { return absent<array_peer>("libtorch", "libtorch-dev"); }

#endif
