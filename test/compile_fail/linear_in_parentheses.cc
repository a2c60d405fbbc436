// page: 26 Sizes in parentheses
// expect: linear takes (its )?sizes in angle brackets
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;

#ifdef MENDED
auto l = ike::linear<20, 32>{};
#else
auto l = ike::linear(20, 32);
#endif
