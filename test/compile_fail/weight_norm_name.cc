// expect: weight_norm expects the name of a parameter of the module
// errors-clang: 2
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/weight_norm.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::weight_norm<ike::linear<3, 4>, "bias"> net;
#else
inline constexpr ike::weight_norm<ike::linear<3, 4, ike::bias<false> >, "bias"> net;
#endif
