// expect: a convolution takes the options kernel, stride, padding, dilation, groups, bias and padding_mode, each once
// errors-clang: 2
#include <ikebana/nn/conv.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::conv2d<1, 8, ike::kernel<3>> net;
#else
inline constexpr ike::conv2d<1, 8, ike::kernel<3>, ike::kernel<5>> net;
#endif
