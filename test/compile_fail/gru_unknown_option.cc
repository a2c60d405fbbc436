// expect: gru takes the options num_layers, bias, batch_first, bidirectional, packed and stateful, each once
// errors-clang: 2
#include <ikebana/nn/gru.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::lazy_gru<4, ike::num_layers<2>> net;
#else
inline constexpr ike::lazy_gru<4, ike::proj_size<3>> net;
#endif
