// expect: ikebana: the element type of an optimizer is that of its model: adam<float> for initialize<float, ..>; adam optimizer\{model\} deduces it
// line: 5
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/adam.hpp>

namespace ike = ikebana;

auto model = ike::initialize<float, ike::shape{32, 20}>(ike::linear<20, 10>{}, ike::seed{1});

#ifdef MENDED
ike::adam<float> optimizer{model};
#else
ike::adam<double> optimizer{model};
#endif
