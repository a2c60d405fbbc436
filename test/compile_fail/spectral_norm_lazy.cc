// expect: spectral_norm expects a module whose parameters exist; this one has a dimension left out
#include <ikebana/nn/conv.hpp>
#include <ikebana/nn/spectral_norm.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::spectral_norm net{ike::conv2d<3, 4, ike::kernel<3>>{}};
#else
inline constexpr ike::spectral_norm net{ike::lazy_conv2d<4, ike::kernel<3>>{}};
#endif
