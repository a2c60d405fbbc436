// expect: softmax takes the option dim, once
// errors-clang: 2
#include <ikebana/nn/softmax.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::softmax<ike::dim<1>> net;
#else
inline constexpr ike::softmax<ike::groups<1>> net;
#endif
