// expect: max pooling takes the options kernel, stride, padding, dilation, ceil_mode and return_indices, each once
// errors-clang: 2
#include <ikebana/nn/pool.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::max_pool2d<ike::kernel<2>> net;
#else
inline constexpr ike::max_pool2d<ike::kernel<2>, ike::groups<2>> net;
#endif
