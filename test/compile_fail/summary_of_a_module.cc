// expect: summary and to_dot need an initialized model: initialize<T, shape>\(module, seed\) gives one
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;

constexpr auto net = ike::sequential(ike::linear<4, 3>{}, ike::relu{});
#ifdef MENDED
const auto text = ike::summary(ike::initialize<float, ike::shape{1, 4}>(net, ike::seed{1}));
#else
const auto text = ike::summary(net);
#endif
