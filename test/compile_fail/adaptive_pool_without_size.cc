// expect: adaptive pooling needs the option output_size<\.\.>
// errors-clang: 3
#include <ikebana/nn/adaptive_pool.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::adaptive_avg_pool2d<ike::output_size<1>> net;
#else
inline constexpr ike::adaptive_avg_pool2d<> net;
#endif
