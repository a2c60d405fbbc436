// expect: an observed value is an output of the network already
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<8>{}, "fc2"_m = ike::lazy_linear<4>{});
#ifdef MENDED
constexpr auto seen = ike::observe<"fc1">(net);
#else
constexpr auto seen = ike::observe<"fc2">(net);
#endif

auto model = ike::initialize<float, ike::shape{32, 10}>(seen, ike::seed{1});
