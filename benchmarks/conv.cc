// Convolutions, forward and backward.
//
//     tools/bazel run //benchmarks:conv -- [--filter 'ResNet.*backward']

#include "ikebana/cpu/conv.hpp"

#include <string>
#include <vector>

#include "benchmarks/contest.hpp"
#include "benchmarks/conv_peers.hpp"

namespace {

using bench::conv_problem, bench::dim_t, bench::pass;
namespace cpu = ikebana::cpu;

bench::timed ours(const conv_problem& p) {
  const cpu::conv_geometry g{.batch = p.batch,
                             .in_channels = p.inputs,
                             .out_channels = p.outputs,
                             .groups = p.groups,
                             .in = {1, p.height, p.width},
                             .out = {1, p.out(p.height), p.out(p.width)},
                             .kernel = {1, p.kernel, p.kernel},
                             .stride = {1, p.stride, p.stride},
                             .padding = {0, p.padding, p.padding},
                             .dilation = {1, p.dilation, p.dilation}};
  switch (p.direction) {
    case pass::forward:
      return bench::repeated([=] { cpu::conv_forward<float>(g, p.x, p.w, p.bias, p.result); });
    case pass::backward_data:
      return bench::repeated([=] { cpu::conv_backward_data<float>(g, p.dy, p.w, p.result); });
    default:
      return bench::repeated(
          [=] { cpu::conv_backward_weights<float>(g, p.x, p.dy, p.result, false); });
  }
}

struct layer {
  const char* group;
  conv_problem problem;
};

std::string describe(const conv_problem& p) {
  const auto text = [](dim_t n) { return std::to_string(n); };
  std::string name = "N" + text(p.batch) + " " + text(p.inputs) + "x" + text(p.height) + "x" +
                     text(p.width) + " -> " + text(p.outputs) + ", " + text(p.kernel) + "x" +
                     text(p.kernel);
  if (p.stride != 1) name += ", stride " + text(p.stride);
  if (p.dilation != 1) name += ", dilation " + text(p.dilation);
  if (p.groups == p.inputs && p.groups > 1)
    name += ", depthwise";
  else if (p.groups != 1)
    name += ", groups " + text(p.groups);
  return name;
}

constexpr conv_problem square(dim_t batch, dim_t inputs, dim_t size, dim_t outputs, dim_t kernel,
                              dim_t stride = 1, dim_t groups = 1, dim_t dilation = 1) {
  return {.batch = batch,
          .inputs = inputs,
          .height = size,
          .width = size,
          .outputs = outputs,
          .kernel = kernel,
          .stride = stride,
          .padding = dilation * (kernel / 2),
          .dilation = dilation,
          .groups = groups};
}

constexpr conv_problem unpadded(conv_problem p) {
  p.padding = 0;
  return p;
}

constexpr layer layers[] = {
    {"one image", square(1, 1, 28, 8, 3)},         {"one image", square(1, 16, 32, 32, 3)},
    {"one image", square(1, 64, 56, 64, 3)},       {"one image", square(1, 64, 56, 64, 1)},
    {"one image", square(1, 128, 28, 128, 3, 2)},  {"one image", square(1, 64, 56, 64, 3, 1, 64)},
    {"batches", square(32, 1, 28, 8, 3)},          {"batches", square(32, 16, 32, 32, 3)},
    {"batches", square(32, 64, 56, 64, 3)},        {"LeNet", square(1, 1, 28, 6, 5)},
    {"LeNet", unpadded(square(1, 6, 14, 16, 5))},  {"LeNet", square(32, 1, 28, 6, 5)},
    {"LeNet", unpadded(square(32, 6, 14, 16, 5))}, {"ResNet", square(1, 3, 224, 64, 7, 2)},
    {"ResNet", square(1, 64, 56, 128, 3, 2)},      {"ResNet", square(1, 64, 56, 128, 1, 2)},
    {"ResNet", square(1, 128, 28, 128, 3)},        {"ResNet", square(1, 256, 14, 256, 3)},
    {"ResNet", square(1, 512, 7, 512, 3)},         {"ResNet", square(1, 64, 56, 256, 1)},
    {"ResNet", square(1, 256, 56, 64, 1)},         {"ResNet", square(1, 256, 14, 1024, 1)},
    {"ResNet", square(1, 1024, 14, 256, 1)},       {"ResNet", square(8, 128, 28, 128, 3)},
    {"ResNet", square(8, 256, 14, 256, 3)},        {"other", square(1, 128, 28, 128, 3, 1, 32)},
    {"other", square(1, 32, 112, 32, 3, 1, 32)},   {"other", square(1, 96, 112, 96, 3, 2, 96)},
    {"other", square(1, 240, 14, 240, 5, 1, 240)}, {"other", square(8, 64, 56, 64, 3, 1, 64)},
    {"other", square(1, 64, 56, 64, 3, 1, 1, 2)},  {"other", square(1, 17, 31, 23, 3)},
    {"other", square(3, 13, 19, 37, 5, 2)},
};

}  // namespace

int main(int argc, char** argv) {
  bench::contest contest("conv");
  if (const auto code = contest.begin(argc, argv)) return *code;
  const auto peers = contest.admitted(bench::onednn_conv(), bench::onednn_nchw_conv(),
                                      bench::torch_conv(), bench::torch_channels_last_conv());
  static constexpr const char* directions[] = {"forward", "backward data", "backward weights"};
  for (const pass direction : {pass::forward, pass::backward_data, pass::backward_weights})
    for (const layer& l : layers) {
      conv_problem p = l.problem;
      p.direction = direction;
      const double x = static_cast<double>(p.x_size()), w = static_cast<double>(p.w_size()),
                   y = static_cast<double>(p.y_size()),
                   result = static_cast<double>(p.result_size());
      const double taps = static_cast<double>(p.inputs / p.groups * p.kernel * p.kernel);
      contest.measure(
          {.group = std::string{directions[static_cast<int>(direction)]} + ", " + l.group,
           .name = describe(p),
           .amount = {.operations = 2 * y * taps,
                      .read = 4 * (x + w + y - result),
                      .written = 4 * result}},
          [&] {
            auto images = bench::random_array<float>(p.x_size(), 1),
                 weights = bench::random_array<float>(p.w_size(), 2),
                 bias = bench::random_array<float>(p.outputs, 3),
                 dy = bench::random_array<float>(p.y_size(), 4);
            p.x = images.data(), p.w = weights.data(), p.bias = bias.data(), p.dy = dy.data();
            return bench::field{
                bench::contestants<float, conv_problem>(p, p.result_size(), ours, peers),
                bench::keep(std::move(images), std::move(weights), std::move(bias), std::move(dy))};
          });
    }
  return contest.end();
}
