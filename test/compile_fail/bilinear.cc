// expect: bilinear expects in2_features = 5, got 4 \(input \[32, 4\]\)
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/bilinear.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr ike::bilinear<3, 4, 2> net;
#else
constexpr ike::bilinear<3, 5, 2> net;
#endif

auto model = ike::initialize<float, ike::shape{32, 3}, ike::shape{32, 4}>(net, ike::seed{1});
