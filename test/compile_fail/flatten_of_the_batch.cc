// expect: fc\.weight: has shape \[10, dynamic\]: the batch, dimension 0 of the input, has become features; flatten<> keeps it
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/flatten.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential("flat"_m = ike::flatten<>{}, "fc"_m = ike::lazy_linear<10>{});
#else
constexpr auto net =
    ike::sequential("flat"_m = ike::flatten<ike::start_dim<0> >{}, "fc"_m = ike::lazy_linear<10>{});
#endif

auto model = ike::initialize<float, ike::shape{ike::dynamic, 1, 28, 28}>(net, ike::seed{1});
