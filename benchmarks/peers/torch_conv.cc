#include "benchmarks/conv_peers.hpp"

#ifdef IKEBANA_HAS_TORCH

#include <ATen/ATen.h>
#include <torch/csrc/api/include/torch/version.h>

namespace bench {
namespace {

timed prepare(const conv_problem& p, at::MemoryFormat format) {
  const auto view = [&](const float* data, at::IntArrayRef sizes) {
    return at::from_blob(const_cast<float*>(data), sizes).contiguous(format);
  };
  const at::Tensor x = view(p.x, {p.batch, p.inputs, p.height, p.width}),
                   w = view(p.w, {p.outputs, p.inputs / p.groups, p.kernel, p.kernel}),
                   bias = at::from_blob(const_cast<float*>(p.bias), {p.outputs}),
                   dy = view(p.dy, {p.batch, p.outputs, p.out(p.height), p.out(p.width)});
  const std::vector<std::int64_t> stride{p.stride, p.stride}, padding{p.padding, p.padding},
      dilation{p.dilation, p.dilation}, none{0, 0};
  const auto run = [=] {
    c10::InferenceMode inference;
    if (p.direction == pass::forward)
      return at::conv2d(x, w, bias, stride, padding, dilation, p.groups);
    const bool of_data = p.direction == pass::backward_data;
    const auto gradients =
        at::convolution_backward(dy, x, w, c10::nullopt, stride, padding, dilation, false, none,
                                 p.groups, {of_data, !of_data, false});
    return of_data ? std::get<0>(gradients) : std::get<1>(gradients);
  };
  const at::Tensor result = run().contiguous();  // For comparison only.
  std::copy_n(result.data_ptr<float>(), result.numel(), p.result);
  return repeated([=] { run(); });
}

conv_peer make(const char* name, at::MemoryFormat format) {
  return {name, TORCH_VERSION, "libtorch-dev", {[=](const conv_problem& p) {
            return prepare(p, format);
          }}};
}

}  // namespace

conv_peer torch_conv() { return make("libtorch", at::MemoryFormat::Contiguous); }
conv_peer torch_channels_last_conv() {
  return make("libtorch channels-last", at::MemoryFormat::ChannelsLast);
}

}  // namespace bench

#else

bench::conv_peer bench::torch_conv() { return absent<conv_peer>("libtorch", "libtorch-dev"); }
bench::conv_peer bench::torch_channels_last_conv() {
  return absent<conv_peer>("libtorch channels-last", "libtorch-dev");
}

#endif
