// page: 10 A std::vector as input
// expect: input 0 is no tensor: tensor_view<const float, shape\{\.\.\}>\(data\) is one of numbers that stand in an array
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/loss.hpp>
#include <ikebana/optim/adam.hpp>
#include <vector>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
ike::tensor<float, ike::shape{32, 20}> x;
std::vector<float> numbers(32 * 20);

#ifdef MENDED
auto y = model(ike::tensor_view<const float, ike::shape{32, 20}>(numbers.data()));
#else
auto y = model(numbers);
#endif
