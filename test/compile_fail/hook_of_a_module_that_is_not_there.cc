// expect: fc2: is not the path of a module; there are fc1
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

#ifdef MENDED
auto handle = model.register_forward_hook("fc1"_s, [](const ike::module_call&) {});
#else
auto handle = model.register_forward_hook("fc2"_s, [](const ike::module_call&) {});
#endif
