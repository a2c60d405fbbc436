// expect: flatten takes the options start_dim and end_dim, each once
// errors-clang: 2
#include <ikebana/nn/flatten.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::flatten<ike::start_dim<1>> net;
#else
inline constexpr ike::flatten<ike::start_dim<1>, ike::start_dim<2>> net;
#endif
