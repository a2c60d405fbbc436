// expect: ikebana: averaged_model takes a model: averaged_model average\{model\};
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/adam.hpp>
#include <ikebana/optim/averaged_model.hpp>

namespace ike = ikebana;

auto model = ike::initialize<float, ike::shape{32, 20}>(ike::linear<20, 10>{}, ike::seed{1});
ike::adam optimizer{model};

#ifdef MENDED
ike::averaged_model average{model};
#else
ike::averaged_model average{optimizer};
#endif
