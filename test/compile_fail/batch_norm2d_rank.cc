// page: 07 An input of another rank
// expect: bn1: batch_norm2d expects an input of 4 dimensions, got 2 \(input \[32, 10\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/batch_norm.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
#else
constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "bn1"_m = ike::batch_norm2d<10>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
