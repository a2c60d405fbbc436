// expect: flatten: flatten expects start_dim within 1 dimensions, got 1 \(input \[20\]\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/flatten.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential("flatten"_m = ike::flatten<ike::start_dim<0>>{});
#else
constexpr auto net = ike::sequential("flatten"_m = ike::flatten{});
#endif

auto model = ike::initialize<float, ike::shape{20}>(net, ike::seed{1});
