// A single module has no path.
// expect: linear expects in_features = 12, got 10 \(input \[32, 10\]\)
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::linear<10, 3>{};
#else
constexpr auto net = ike::linear<12, 3>{};
#endif

auto model = ike::initialize<float, ike::shape{32, 10}>(net, ike::seed{1});
