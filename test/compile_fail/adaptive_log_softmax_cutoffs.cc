// expect: adaptive_log_softmax needs cutoffs<\.\.>, from 1 to 7 rising numbers below the number of classes
// errors-clang: 2
#include <ikebana/nn/adaptive_log_softmax.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::adaptive_log_softmax<8, 20, ike::cutoffs<4, 10>> net;
#else
inline constexpr ike::adaptive_log_softmax<8, 20, ike::cutoffs<4, 20>> net;
#endif
