// expect: fc\.weight: has shape \[2, 4\], but \[2, 3\] in the embedded weights
#include <ikebana/compose/sequential.hpp>
#include <ikebana/deploy/freeze.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

struct weights {
  using value_type = float;
  static constexpr float data[8] = {};
  static constexpr ike::embedded_tensor tensors[] = {{"fc.weight", shape{2, 3}, 0},
                                                     {"fc.bias", shape{2}, 6}};
};
constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<2>{});

#ifdef MENDED
const auto frozen = ike::freeze<weights, shape{1, 3}>(net);
#else
const auto frozen = ike::freeze<weights, shape{1, 4}>(net);
#endif
