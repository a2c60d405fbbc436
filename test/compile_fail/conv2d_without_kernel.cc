// page: 28 No kernel
// expect: a convolution needs the option kernel<\.\.>
// errors-clang: 2
#include <ikebana/nn/conv.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::conv2d<1, 8, ike::kernel<3>> net;
#else
inline constexpr ike::conv2d<1, 8> net;
#endif
