// The ten features that come out of fc1 are not the twelve that fc2 takes.
// expect-gcc: shape_mismatch<.*"fc2: linear expects in_features = 12, got 10 \(input \[32, 10\]\)"
// expect-clang: path<'f', 'c', '2'>, ikebana::expected<12>, ikebana::got<10>
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
