// A lambda of a function has a local type.
// expect: a hook of backward takes a const module_gradients& and returns nothing
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

void watch() {
#ifdef MENDED
  model.register_full_backward_hook("fc1"_s, [](const ike::module_gradients&) {});
#else
  model.register_full_backward_hook("fc1"_s, [](const ike::module_call&) {});
#endif
}
