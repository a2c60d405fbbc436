// expect: linear takes the option bias<bool>
#include <ikebana/nn/linear.hpp>

#ifdef MENDED
inline constexpr auto module = ikebana::linear<4, 2, ikebana::bias<false>>{};
#else
inline constexpr auto module = ikebana::linear<4, 2, int>{};
#endif
