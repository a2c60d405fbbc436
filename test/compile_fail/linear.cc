// fc1 gives ten features, but fc2 takes twelve.
// page: 01 Sizes that do not fit
// expect: fc2: linear expects in_features = 12, got 10 \(input \[32, 10\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/activation.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "relu1"_m = ike::relu{},
                                     "fc2"_m = ike::linear<10, 3>{});
#else
constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "relu1"_m = ike::relu{},
                                     "fc2"_m = ike::linear<12, 3>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
