// The model exists; its input has another shape.
// page: 08 A model called with another shape
// expect: fc1: linear expects in_features = 20, got 12 \(input \[32, 12\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

#ifdef MENDED
auto y = model(ike::ones<float, ike::shape{32, 20}>());
#else
auto y = model(ike::ones<float, ike::shape{32, 12}>());
#endif
