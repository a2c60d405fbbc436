// expect: the name of a module is not empty and has no dot
#include <ikebana/compose/sequential.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
inline constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<8>{});
#else
inline constexpr auto net = ike::sequential("fc.1"_m = ike::lazy_linear<8>{});
#endif
