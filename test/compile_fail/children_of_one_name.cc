// Their parameters would have equal paths.
// expect: block\.fc: two children have this name, 0 and 2
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/activation.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto block =
    ike::sequential("fc"_m = ike::lazy_linear<8>{}, ike::relu{}, "fc2"_m = ike::lazy_linear<8>{});
#else
constexpr auto block =
    ike::sequential("fc"_m = ike::lazy_linear<8>{}, ike::relu{}, "fc"_m = ike::lazy_linear<8>{});
#endif

auto model =
    ike::initialize<float, ike::shape{32, 20}>(ike::sequential("block"_m = block), ike::seed{1});
