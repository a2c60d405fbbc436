// expect: a convolution with same_padding needs a stride of 1
// errors-clang: 2
#include <ikebana/nn/conv.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::conv1d<1, 8, ike::kernel<3>, ike::same_padding> net;
#else
inline constexpr ike::conv1d<1, 8, ike::kernel<3>, ike::same_padding, ike::stride<2> > net;
#endif
