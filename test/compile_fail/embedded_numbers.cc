// expect: table\.weight: has numbers of another type in the embedded weights
#include <cstdint>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/deploy/embedded_quantized.hpp>
#include <ikebana/deploy/freeze.hpp>
#include <ikebana/nn/embedding.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;
using ike::dtype;
using ike::shape;

struct weights {
  using value_type = float;
  static constexpr float data[2] = {};
  static constexpr std::uint16_t halves[12] = {};
  static constexpr ike::embedded_tensor tensors[] = {
      {"table.weight", shape{2, 3}, 0, dtype::bfloat16},
      {"fc.weight", shape{2, 3}, 6, dtype::bfloat16},
      {"fc.bias", shape{2}, 0}};
};
#ifdef MENDED
struct mended {
  using value_type = float;
  static constexpr float data[8] = {};
  static constexpr std::uint16_t halves[6] = {};
  static constexpr ike::embedded_tensor tensors[] = {{"table.weight", shape{2, 3}, 0},
                                                     {"fc.weight", shape{2, 3}, 0, dtype::bfloat16},
                                                     {"fc.bias", shape{2}, 6}};
};
#endif
constexpr auto net =
    ike::sequential("table"_m = ike::embedding<2, 3>{}, "fc"_m = ike::lazy_linear<2>{});

#ifdef MENDED
const auto frozen = ike::freeze<mended, shape{1}>(net);
#else
const auto frozen = ike::freeze<weights, shape{1}>(net);
#endif
