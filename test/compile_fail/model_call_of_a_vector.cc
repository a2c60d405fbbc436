// page: 10 A std::vector as input
// expect: input 0 is not a tensor: as_tensor<shape\{\.\.\}>\(v\) is a view of a std::vector or array
#include <ikebana/compose/sequential.hpp>
#include <ikebana/core/views.hpp>
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
auto y = model(ike::as_tensor<ike::shape{32, 20}>(numbers));
#else
auto y = model(numbers);
#endif
