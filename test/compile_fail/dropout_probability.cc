// A probability is checked as soon as its value is known.
// note: refuse_probability
#include <ikebana/nn/dropout.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::dropout drop{.p = 0.5};
#else
inline constexpr ike::dropout drop{.p = 1.5};
#endif
