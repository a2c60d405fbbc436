// Unbatched, the channels of [8, 26, 26] are its 8, not its 26.
// expect-gcc: shape_mismatch<.*"instance_norm2d expects num_features = 26, got 8 \(input \[8, 26, 26\]\)"
// expect-clang: ikebana::expected<26>, ikebana::got<8>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/instance_norm.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::instance_norm2d<8, ike::affine<true>>{};
#else
constexpr auto net = ike::instance_norm2d<26, ike::affine<true>>{};
#endif

auto model = ike::initialize<float, ike::shape{8, 26, 26}>(net, ike::seed{1});
