// expect: linear takes the option bias<bool>
// errors-clang: 2
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::lazy_linear<8> net;
#else
inline constexpr ike::lazy_linear<8, ike::kernel<3> > net;
#endif
