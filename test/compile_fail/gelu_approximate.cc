// expect: gelu takes approximate<.{1,2}none.{1,2}> or approximate<.{1,2}tanh.{1,2}>
// errors-clang: 2
#include <ikebana/nn/activation.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::gelu<ike::approximate<"tanh">> net;
#else
inline constexpr ike::gelu<ike::approximate<"sigmoid">> net;
#endif
