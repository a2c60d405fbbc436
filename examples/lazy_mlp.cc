// A lazy network, resolved by the compiler from a declared shape, and resolved at its first call.

#include <iostream>

#include "ikebana/ikebana.hpp"

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto lazy_mlp = ike::sequential(
    "fc1"_m = ike::lazy_linear<10>{},  // linear<ike::lazy, 10>: in_features is left out
    "relu1"_m = ike::relu{}, "fc2"_m = ike::lazy_linear<1>{}, "relu2"_m = ike::relu{});

static_assert(ike::has_uninitialized_params(lazy_mlp));

int main() {
  std::cout << "As written:\n" << lazy_mlp << "\n\n";

  // The dry run happens in the compiler. The result is of another type: nothing in it is lazy.
  auto mlp = ike::initialize<double, ike::shape{10, 10}>(lazy_mlp, ike::seed{42});
  static_assert(!ike::has_uninitialized_params(decltype(mlp)::module_type{}));
  std::cout << "Resolved for inputs of shape [10, 10]:\n" << mlp << "\n\n";

  const auto x = ike::ones<double, ike::shape{10, 10}>();
  const auto y = mlp(x);
  std::cout << "fc1.weight is " << mlp["fc1.weight"_s].extents()[0] << " x "
            << mlp["fc1.weight"_s].extents()[1] << ", the first output " << y(0, 0) << "\n";

  // mlp(ike::ones<double, ike::shape{10, 12}>());
  //   error: fc1: linear expects in_features = 10, got 12 (input [10, 12])

  // The same at the first call, for programs that have the network before the data.
  ike::lazy_model holder{lazy_mlp, ike::seed{42}};
  const auto z = holder(x);
  std::cout << "resolved at the first call, the first output is " << z(0, 0) << "\n";
  for (ike::dim_t i = 0; i < y.size(); ++i)
    if (y[i] != z[i]) return 1;

  // What only run time knows is checked at run time, with the compiler's sentence.
  try {
    holder(ike::ones<double, ike::shape{10, 12}>());
  } catch (const ike::shape_error& e) {
    std::cout << "and another input is refused: " << e.what() << "\n";
    return 0;
  }
  return 1;
}
