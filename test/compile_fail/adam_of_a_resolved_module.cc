// Known dimensions do not make parameters.
// expect: adam needs an initialized model
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/adam.hpp>

namespace ike = ikebana;

inline constexpr ike::linear<20, 10> net;
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

#ifdef MENDED
ike::adam optimizer{model};
#else
ike::adam optimizer{net};
#endif
