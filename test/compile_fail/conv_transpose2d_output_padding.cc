// expect: a transposed convolution needs an output_padding smaller than its stride or its dilation
// errors-clang: 2
#include <ikebana/nn/conv_transpose.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::conv_transpose2d<8, 1, ike::kernel<3>, ike::stride<2>, ike::output_padding<1>>
    net;
#else
inline constexpr ike::conv_transpose2d<8, 1, ike::kernel<3>, ike::stride<2>, ike::output_padding<2>>
    net;
#endif
