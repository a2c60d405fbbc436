// Unbatched, [8, 26, 26] has 8 channels, not 26.
// expect: instance_norm2d expects num_features = 26, got 8 \(input \[8, 26, 26\]\)
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/instance_norm.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::instance_norm2d<8, ike::affine<true>>{};
#else
constexpr auto net = ike::instance_norm2d<26, ike::affine<true>>{};
#endif

auto model = ike::initialize<float, ike::shape{8, 26, 26}>(net, ike::seed{1});
