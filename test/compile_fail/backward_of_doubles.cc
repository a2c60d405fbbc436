// expect: backward expects a gradient of float, got double
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

#ifdef MENDED
void run() { model.backward(ike::ones<float, ike::shape{32, 10}>()); }
#else
void run() { model.backward(ike::ones<double, ike::shape{32, 10}>()); }
#endif
