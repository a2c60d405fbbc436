// expect: a convolution needs a kernel, stride, dilation and groups of at least 1, padding of at least 0
// errors-clang: 2
#include <ikebana/nn/conv.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::conv2d<1, 8, ike::kernel<3>, ike::stride<1>> net;
#else
inline constexpr ike::conv2d<1, 8, ike::kernel<3>, ike::stride<0>> net;
#endif
