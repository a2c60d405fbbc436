// expect: pooling needs the option kernel<\.\.>
// errors-clang: 3
#include <ikebana/nn/pool.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::avg_pool2d<ike::kernel<2>> net;
#else
inline constexpr ike::avg_pool2d<ike::stride<2>> net;
#endif
