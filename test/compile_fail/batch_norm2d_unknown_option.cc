// expect: batch norm takes the options affine and track_running_stats, each once
// errors-clang: 2
#include <ikebana/nn/batch_norm.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::batch_norm2d<8, ike::affine<false>> net;
#else
inline constexpr ike::batch_norm2d<8, ike::bias<false>> net;
#endif
