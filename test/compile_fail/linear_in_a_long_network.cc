// The sentence does not grow with the network.
// expect: fc9: linear expects in_features = 12, got 10 \(input \[32, 10\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/activation.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential(
    "fc1"_m = ike::lazy_linear<10>{}, "relu1"_m = ike::relu{}, "fc2"_m = ike::lazy_linear<10>{},
    "relu2"_m = ike::relu{}, "fc3"_m = ike::lazy_linear<10>{}, "relu3"_m = ike::relu{},
    "fc4"_m = ike::lazy_linear<10>{}, "relu4"_m = ike::relu{}, "fc5"_m = ike::lazy_linear<10>{},
    "relu5"_m = ike::relu{}, "fc6"_m = ike::lazy_linear<10>{}, "relu6"_m = ike::relu{},
    "fc7"_m = ike::lazy_linear<10>{}, "relu7"_m = ike::relu{}, "fc8"_m = ike::lazy_linear<10>{},
    "relu8"_m = ike::relu{}, "fc9"_m = ike::lazy_linear<3>{});
#else
constexpr auto net = ike::sequential(
    "fc1"_m = ike::lazy_linear<10>{}, "relu1"_m = ike::relu{}, "fc2"_m = ike::lazy_linear<10>{},
    "relu2"_m = ike::relu{}, "fc3"_m = ike::lazy_linear<10>{}, "relu3"_m = ike::relu{},
    "fc4"_m = ike::lazy_linear<10>{}, "relu4"_m = ike::relu{}, "fc5"_m = ike::lazy_linear<10>{},
    "relu5"_m = ike::relu{}, "fc6"_m = ike::lazy_linear<10>{}, "relu6"_m = ike::relu{},
    "fc7"_m = ike::lazy_linear<10>{}, "relu7"_m = ike::relu{}, "fc8"_m = ike::lazy_linear<10>{},
    "relu8"_m = ike::relu{}, "fc9"_m = ike::linear<12, 3>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
