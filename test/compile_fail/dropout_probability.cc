// A probability is checked as soon as its value is known.
// note: a_probability_is_between_0_and_1
#include <ikebana/nn/dropout.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::dropout drop{.p = 0.5};
#else
inline constexpr ike::dropout drop{.p = 1.5};
#endif
