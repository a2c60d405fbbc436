// expect: an option takes one value, or one for each spatial dimension
// line: 6
#include <ikebana/nn/conv.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::conv2d<1, 8, ike::kernel<3, 3>> net;
#else
inline constexpr ike::conv2d<1, 8, ike::kernel<3, 3, 3>> net;
#endif
