#include "benchmarks/layer_peers.hpp"

#ifdef IKEBANA_HAS_TORCH

#include <ATen/ATen.h>
#include <torch/csrc/api/include/torch/version.h>

namespace bench {
namespace {

timed finish(const layer_problem& p, auto run) {
  const c10::InferenceMode inference;
  const at::Tensor y = run().contiguous();  // For comparison only.
  std::copy_n(y.template data_ptr<float>(), y.numel(), p.result);
  return repeated([=] {
    const c10::InferenceMode inference;
    run();
  });
}

timed prepare(const layer_problem& p) {
  const auto view = [](const float* data, at::IntArrayRef sizes) {
    return at::from_blob(const_cast<float*>(data), sizes);
  };
  const at::Tensor x = view(p.x, {p.batch, p.channels, p.size, p.size}),
                   dy = view(p.dy, {p.batch, p.channels, p.out(), p.out()}),
                   gamma = view(p.gamma, {p.channels}), beta = view(p.beta, {p.channels});
  const std::vector<std::int64_t> kernel{p.kernel, p.kernel}, stride{p.stride, p.stride},
      padding{p.padding, p.padding}, dilation{1, 1};
  const at::Tensor mean = at::zeros({p.channels}), variance = at::ones({p.channels});
  switch (p.what) {
    case layer::max_pool:
      return finish(p, [=] {
        return std::get<0>(
            at::max_pool2d_with_indices(x, kernel, stride, padding, dilation, false));
      });
    case layer::max_pool_backward: {
      const auto indices =
          std::get<1>(at::max_pool2d_with_indices(x, kernel, stride, padding, dilation, false));
      return finish(p, [=] {
        return at::max_pool2d_with_indices_backward(dy, x, kernel, stride, padding, dilation, false,
                                                    indices);
      });
    }
    case layer::average_pool:
      return finish(p, [=] { return at::avg_pool2d(x, kernel, stride, padding); });
    case layer::average_pool_backward:
      return finish(p, [=] {
        return at::avg_pool2d_backward(dy, x, kernel, stride, padding, false, true, c10::nullopt);
      });
    case layer::batch_norm:
    case layer::batch_norm_inference:
      return finish(p, [=] {
        return std::get<0>(at::native_batch_norm(x, gamma, beta, mean, variance,
                                                 p.what == layer::batch_norm, 0.1, 1e-5));
      });
    case layer::batch_norm_backward: {
      const auto all = at::native_batch_norm(x, gamma, beta, mean, variance, true, 0.1, 1e-5);
      return finish(p, [=] {
        return std::get<0>(at::native_batch_norm_backward(dy, x, gamma, mean, variance,
                                                          std::get<1>(all), std::get<2>(all), true,
                                                          1e-5, {true, true, true}));
      });
    }
    default:
      return finish(p, [=] { return at::group_norm(x, p.groups, gamma, beta, 1e-5); });
  }
}

}  // namespace

layer_peer torch_layers() { return {"libtorch", TORCH_VERSION, "libtorch-dev", {prepare}}; }

}  // namespace bench

#else

bench::layer_peer bench::torch_layers() { return absent<layer_peer>("libtorch", "libtorch-dev"); }

#endif
