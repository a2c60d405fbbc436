// expect: backward takes a gradient for each output, 1 here, got 2; those of several outputs are a std::tuple
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
ike::tensor<float, ike::shape{32, 10}> g;

#ifdef MENDED
void run() { model.backward(g); }
#else
void run() { model.backward(std::tuple{g, g}); }
#endif
