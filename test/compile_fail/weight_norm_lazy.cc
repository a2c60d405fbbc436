// expect: weight_norm expects a module whose parameters exist; this one has a dimension left out
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/weight_norm.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::weight_norm net{ike::linear<3, 4>{}};
#else
inline constexpr ike::weight_norm net{ike::lazy_linear<4>{}};
#endif
