// expect: path\.a: is not the path of a choose; there are path
#include <ikebana/compose/choose.hpp>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential(
    "path"_m = ike::choose("a"_m = ike::lazy_linear<6>{}, "b"_m = ike::lazy_linear<6>{}));
auto model = ike::initialize<float, ike::shape{32, 4}>(net, ike::seed{1});

void take_the_second() {
#ifdef MENDED
  model.choose("path"_s, 1);
#else
  model.choose("path.a"_s, 1);
#endif
}
