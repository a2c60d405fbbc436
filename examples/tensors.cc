// Tensors on memory that the program has already, and images of bytes as a network's input.

#include <cstdint>
#include <ikebana/ikebana.hpp>
#include <ikebana/nn.hpp>
#include <iostream>
#include <vector>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net =
    ike::sequential("up"_m = ike::upsample<ike::scale_factor<2>, ike::mode<"bilinear">>{},
                    "pad"_m = ike::reflection_pad2d<ike::padding<1>>{},
                    "conv"_m = ike::lazy_conv2d<4, ike::kernel<3>>{}, "prelu"_m = ike::prelu<4>{},
                    "pool"_m = ike::adaptive_avg_pool2d<ike::output_size<1>>{}, ike::flatten<>{});

int main() {
  // Samples in a std::vector, seen as rows of three numbers. Nothing is copied.
  std::vector<float> samples{1, 2, 3, 4, 5, 6};
  auto x = ike::as_tensor<ike::shape{ike::dynamic, 3}>(samples);
  ike::select(x, 1)[0] = 40;        // row 1: samples[3]
  auto last = ike::slice(x, 1, 2);  // [1, 3]
  std::cout << x << '\n' << ike::at(last, 0, 2) << '\n';

  // Two images of 8 x 8 pixels with interleaved colours become floats, [2, 3, 8, 8].
  std::vector<std::uint8_t> pixels(2 * 8 * 8 * 3, 51);
  auto bytes = ike::as_tensor<ike::shape{ike::dynamic, 8, 8, 3}>(pixels);
  auto images = ike::permute<0, 3, 1, 2>(ike::cast<float>(bytes, 1 / 255.f));

  auto model = ike::initialize<float, ike::shape{ike::dynamic, 3, 8, 8}>(net, ike::seed{1});
  model.eval();
  ike::tensor features(model(images));  // a copy: the view is valid until the next call
  std::cout << features << '\n' << ike::argmax(features) << '\n';

  for (auto [name, value] : ike::named_parameters(model))  // a std::string_view, a dynamic_view
    std::cout << name << ' ' << value.extents() << '\n';
  std::cout << ike::parameter_count(model) << " parameters\n";

  // Both images are the same.
  return ike::allclose(ike::select(features, 0), ike::select(features, 1)) && samples[3] == 40 ? 0
                                                                                               : 1;
}
