// expect: group norm needs num_channels divisible by num_groups, at least 1
// errors-clang: 2
#include <ikebana/nn/group_norm.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::group_norm<2, 6> net;
#else
inline constexpr ike::group_norm<4, 6> net;
#endif
