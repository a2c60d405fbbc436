// expect: initialize takes a module, not a model, which is initialized already
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

#ifdef MENDED
auto second = model.clone();
#else
auto second = ike::initialize<float, ike::shape{32, 20}>(model, ike::seed{1});
#endif
