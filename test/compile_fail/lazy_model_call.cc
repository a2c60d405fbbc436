// page: 13 A first call that cannot fit
// expect: fc2: linear expects in_features = 12, got 10 \(input \[dynamic, 10\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/core/tensor.hpp>
#include <ikebana/model/lazy_model.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<12>{}, "fc2"_m = ike::linear<12, 3>{});
#else
constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "fc2"_m = ike::linear<12, 3>{});
#endif
ike::lazy_model holder{net, ike::seed{1}};
auto x = ike::ones<float, ike::shape{32, 20}>();
auto y = holder(x);
