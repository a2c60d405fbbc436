#include <ikebana/ikebana.hpp>
#include <ikebana/io/safetensors.hpp>
#include <iostream>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto network = ike::sequential("fc1"_m = ike::lazy_linear<4>{}, "relu"_m = ike::relu{},
                                         "fc2"_m = ike::lazy_linear<1>{});

int main() {
  auto first = ike::initialize<float, ike::shape{2, 3}>(network, ike::seed{1});
  auto second = ike::initialize<float, ike::shape{2, 3}>(network, ike::seed{2});
  ike::save(ike::get_state_dict(first), "model.safetensors");
  ike::load_state_dict(second, ike::load("model.safetensors"));

  const auto x = ike::ones<float, ike::shape{2, 3}>();
  std::cout << first.module() << '\n';
  return first(x)(0, 0) == second(x)(0, 0) ? 0 : 1;
}
