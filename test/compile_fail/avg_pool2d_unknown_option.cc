// expect: average pooling takes the options kernel, stride, padding, ceil_mode, count_include_pad and divisor_override, each once
// errors-clang: 2
#include <ikebana/nn/pool.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::avg_pool2d<ike::kernel<2>> net;
#else
inline constexpr ike::avg_pool2d<ike::kernel<2>, ike::dilation<2>> net;
#endif
