// expect: norm1: layer_norm expects normalized_shape = 12, got 10 \(input \[32, 10\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/layer_norm.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "norm1"_m = ike::layer_norm<10>{});
#else
constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "norm1"_m = ike::layer_norm<12>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
