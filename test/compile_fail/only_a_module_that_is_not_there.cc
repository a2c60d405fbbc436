// expect: fc1: is not the path of a module; there are fc
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/model/state.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

#ifdef MENDED
auto part = ike::get_state_dict(model, ike::only<"fc">);
#else
auto part = ike::get_state_dict(model, ike::only<"fc1">);
#endif
