// page: 09 Numbers of another type
// expect: input 0: expects elements of type float, got double: convert it with cast, or initialize a model of that type
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/loss.hpp>
#include <ikebana/optim/adam.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
ike::tensor<float, ike::shape{32, 20}> x;

#ifdef MENDED
auto y = model(x);
#else
auto y = model(ike::ones<double, ike::shape{32, 20}>());
#endif
