// expect: proj_size<N> is below hidden_size
// errors-clang: 2
#include <ikebana/nn/lstm.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::lazy_lstm<4, ike::proj_size<3>> net;
#else
inline constexpr ike::lazy_lstm<4, ike::proj_size<4>> net;
#endif
