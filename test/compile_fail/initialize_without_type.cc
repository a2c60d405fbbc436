// expect: initialize takes float, double or a precision as its first template argument
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});

#ifdef MENDED
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
#else
auto model = ike::initialize<ike::shape{32, 20}>(net, ike::seed{1});
#endif
