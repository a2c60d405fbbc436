// A path includes every sequential that contains the module.
// page: 05 The same in a network within a network
// expect: body\.block2\.fc2: linear expects in_features = 12, got 10 \(input \[dynamic, 10\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/activation.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto block1 = ike::sequential("fc1"_m = ike::lazy_linear<16>{}, "relu"_m = ike::relu{});
#ifdef MENDED
constexpr auto block2 =
    ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "fc2"_m = ike::lazy_linear<3>{});
#else
constexpr auto block2 =
    ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "fc2"_m = ike::linear<12, 3>{});
#endif

constexpr auto net = ike::sequential(
    "body"_m = ike::sequential("block1"_m = block1, "block2"_m = block2), "end"_m = ike::relu{});
auto model = ike::initialize<float, ike::shape{ike::dynamic, 20}>(net, ike::seed{1});
