#include <cstdio>
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto network =
    ike::sequential("fc1"_m = ike::lazy_linear<4>{}, "norm"_m = ike::lazy_batch_norm1d<>{},
                    "relu"_m = ike::relu{}, "fc2"_m = ike::lazy_linear<1>{});

int main() {
  auto model = ike::initialize<float, ike::shape{2, 3}>(network, ike::seed{1});
  const auto y = model(ike::ones<float, ike::shape{2, 3}>());
  std::printf("%g %g\n", static_cast<double>(y(0, 0)), static_cast<double>(y(1, 0)));
  return y(0, 0) == y(1, 0) ? 0 : 1;  // equal rows in, equal rows out
}
