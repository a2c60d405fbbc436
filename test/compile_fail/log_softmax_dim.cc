// expect: out: log_softmax expects a dim within 2 dimensions, got 2 \(input \[32, 10\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/softmax.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net =
    ike::sequential("fc"_m = ike::lazy_linear<10>{}, "out"_m = ike::log_softmax<ike::dim<1>>{});
#else
constexpr auto net =
    ike::sequential("fc"_m = ike::lazy_linear<10>{}, "out"_m = ike::log_softmax<ike::dim<2>>{});
#endif

auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
