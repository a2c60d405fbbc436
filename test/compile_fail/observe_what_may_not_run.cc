// expect: way.a: is observed, but belongs to an alternative, which may not run
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net =
    ike::sequential("way"_m = ike::choose("a"_m = ike::tanh{}, "b"_m = ike::relu{}),
                    "fc"_m = ike::lazy_linear<4>{});
#ifdef MENDED
constexpr auto seen = ike::observe<"way">(net);
#else
constexpr auto seen = ike::observe<"way.a">(net);
#endif

auto model = ike::initialize<float, ike::shape{32, 10}>(seen, ike::seed{1});
