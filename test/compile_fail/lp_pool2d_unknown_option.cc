// expect: LP pooling takes the options kernel, stride and ceil_mode, each once
// errors-clang: 2
#include <ikebana/nn/lp_pool.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::lp_pool2d<ike::kernel<2>> net;
#else
inline constexpr ike::lp_pool2d<ike::kernel<2>, ike::padding<1>> net;
#endif
