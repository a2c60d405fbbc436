// Initial values other than the default ones, by patterns of paths.

#include <ikebana/ikebana.hpp>
#include <ikebana/model/init_parameters.hpp>
#include <ikebana/nn/init.hpp>
#include <iostream>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<4>{}, "relu"_m = ike::relu{},
                                     "fc2"_m = ike::lazy_linear<2>{});

int main() {
  auto model = ike::initialize<float, ike::shape{8, 3}>(net, ike::seed{1});

  // One parameter, by its path.
  ike::init::orthogonal(model["fc2.weight"_s], ike::seed{2});
  // All parameters that match a pattern, each with a seed of its own.
  ike::init_parameters<"fc1.weight">(model, ike::seed{2}, [](auto w, ike::seed s) {
    ike::init::kaiming_normal(w, s, {.nonlinearity = ike::init::nonlinearity::relu});
  });
  ike::init_parameters<"*.bias">(model, ike::seed{2},
                                 [](auto b, ike::seed) { ike::init::zeros(b); });

  std::cout << model["fc1.weight"_s] << '\n' << model["fc2.weight"_s] << '\n';
  return model["fc1.bias"_s][0] == 0 ? 0 : 1;
}
