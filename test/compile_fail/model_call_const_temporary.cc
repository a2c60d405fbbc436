// expect: a temporary tensor that is const cannot be kept for backward
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

#ifdef MENDED
ike::tensor<float, ike::shape{32, 20}> batch();
#else
const ike::tensor<float, ike::shape{32, 20}> batch();
#endif

auto y = model(batch());
