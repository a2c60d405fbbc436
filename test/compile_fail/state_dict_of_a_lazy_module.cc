// expect: get_state_dict needs an initialized model: initialize<T, shape>\(module, seed\) gives one
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/model/state.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

#ifdef MENDED
auto dict = ike::get_state_dict(model);
#else
auto dict = ike::get_state_dict(net);
#endif
