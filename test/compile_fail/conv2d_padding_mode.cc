// expect: a convolution takes padding_mode<.{1,2}zeros.{1,2}>, <.{1,2}reflect.{1,2}>, <.{1,2}replicate.{1,2}> or <.{1,2}circular.{1,2}>
// errors-clang: 2
#include <ikebana/nn/conv.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::conv2d<1, 8, ike::kernel<3>, ike::padding<1>, ike::padding_mode<"reflect">>
    net;
#else
inline constexpr ike::conv2d<1, 8, ike::kernel<3>, ike::padding<1>, ike::padding_mode<"mirror">>
    net;
#endif
