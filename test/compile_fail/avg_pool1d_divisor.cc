// expect: avg_pool1d takes no divisor_override
// errors-clang: 2
#include <ikebana/nn/pool.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::avg_pool2d<ike::kernel<2>, ike::divisor_override<3>> net;
#else
inline constexpr ike::avg_pool1d<ike::kernel<2>, ike::divisor_override<3>> net;
#endif
