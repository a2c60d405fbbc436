// An unnamed child is named by its index.
// expect: 2: linear expects in_features = 12, got 10 \(input \[32, 10\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/activation.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::sequential(ike::lazy_linear<10>{}, ike::relu{}, ike::lazy_linear<3>{});
#else
constexpr auto net = ike::sequential(ike::lazy_linear<10>{}, ike::relu{}, ike::linear<12, 3>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
