// expect: averaged_model takes an initialized model and its options in braces: averaged_model{model, {.decay = 0.999}}
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/averaged_model.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc"_m = ike::linear<3, 2>{});

void run() {
  auto model = ike::initialize<float, ike::shape{4, 3}>(net, ike::seed{1});
#ifdef MENDED
  ike::averaged_model average{model, {.decay = 0.999}};
#else
  ike::averaged_model average{model, 0.999};
#endif
  average.update_parameters(model);
}
