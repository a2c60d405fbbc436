// expect: load_state_dict needs an initialized model, or a lazy_model: initialize<T, shape>\(module, seed\) gives one
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/model/state.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

void load(const ike::state_dict& dict) {
#ifdef MENDED
  ike::load_state_dict(model, dict);
#else
  ike::load_state_dict(net, dict);
#endif
}
