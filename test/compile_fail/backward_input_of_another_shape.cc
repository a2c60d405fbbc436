// expect: backward expects a tensor of the shape of the input, \[32, 20\], to write to, got \[20, 32\]
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
ike::tensor<float, ike::shape{32, 10}> g;
ike::tensor<float, ike::shape{32, 20}> dx;
ike::tensor<float, ike::shape{20, 32}> wrong;

#ifdef MENDED
void run() { model.backward(g, dx); }
#else
void run() { model.backward(g, wrong); }
#endif
