// expect: repeat takes the number of modules in angle brackets: repeat<6>\(layer\)
#include <ikebana/compose/repeat.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::repeat<3>(ike::linear<4, 4>{});
#else
constexpr auto net = ike::repeat(ike::linear<4, 4>{}, 3);
#endif
