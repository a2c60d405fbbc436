// expect: fc3: is not the path of a module; there are fc1, fc2
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<8>{}, "fc2"_m = ike::lazy_linear<4>{});
#ifdef MENDED
constexpr auto seen = ike::observe<"fc1">(net);
#else
constexpr auto seen = ike::observe<"fc3">(net);
#endif
