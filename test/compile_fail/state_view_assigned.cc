// expect: and changes with it: model.snapshot\(\) is a copy that stays
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/model/state.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

ike::state_dict best;

void better() {
#ifdef MENDED
  best = model.snapshot();
#else
  best = ike::get_state_dict(model);
#endif
}
