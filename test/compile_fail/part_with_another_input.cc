// expect: fc1: linear expects in_features = 10, got 12
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using namespace ike::literals;

auto model = ike::initialize<float, ike::shape{32, 10}>(
    ike::sequential("fc1"_m = ike::lazy_linear<8>{}, "fc2"_m = ike::lazy_linear<4>{}),
    ike::seed{1});
auto part = model.part<"fc1">();
#ifdef MENDED
ike::tensor<float, ike::shape{32, 10}> x;
#else
ike::tensor<float, ike::shape{32, 12}> x;
#endif

void call() { part(x); }
