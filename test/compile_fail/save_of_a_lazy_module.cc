// page: 33 Saving a module
// expect: save takes the state of an initialized model and a path: save\(get_state_dict\(model\), path\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/io/safetensors.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/model/state.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

void save() {
#ifdef MENDED
  ike::save(ike::get_state_dict(model), "net.safetensors");
#else
  ike::save(net, "net.safetensors");
#endif
}
