// Runs a network that PyTorch exported as an ONNX file, of which tools/onnx_import has made a
// network as a type and a file of weights, and writes it as an ONNX file again.

#include "ikebana/io/onnx.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "examples/residual.hpp"
#include "ikebana/deploy.hpp"
#include "ikebana/ikebana.hpp"
#include "ikebana/io/safetensors.hpp"

namespace ike = ikebana;

int main() {
  auto model = ike::initialize<residual::element, residual::input>(residual::network, ike::seed{1});
  ike::load_state_dict(model, ike::load("examples/residual.safetensors"));

  const auto net = ike::freeze(model);
  auto lane = net.lane(ike::shape{1, 3, 8, 8});
  const auto image = ike::uniform<float, ike::shape{1, 3, 8, 8}>(ike::seed{2});
  const auto y = net(lane, image);
  double sum = 0;
  for (ike::dim_t k = 0; k < 5; ++k) sum += std::exp(static_cast<double>(y(0, k)));
  std::printf("the probabilities of %d classes add up to %.6f\n", 5, sum);

  const char* const directory = std::getenv("BUILD_WORKING_DIRECTORY");
  const std::string file = std::string(directory ? directory : ".") + "/residual.onnx";
  ike::save_onnx(net, file);
  std::printf("written: %s\n", file.c_str());
  return std::abs(sum - 1) < 1e-5 ? 0 : 1;
}
