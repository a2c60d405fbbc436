// Around itself it is no copy; what it computes the parameter from is no longer there.
// expect: ikebana: weight_norm expects the name of a parameter of the module
// errors-clang: 2
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/weight_norm.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::weight_norm net(ike::linear<3, 4>{});
#else
inline constexpr ike::weight_norm net(ike::weight_norm(ike::linear<3, 4>{}));
#endif
