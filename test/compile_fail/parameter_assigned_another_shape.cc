// A parameter is assigned a tensor of another shape.
// expect: ikebana: the shape of what is assigned is not that of the view
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

void assign() {
  auto model = ike::initialize<float, ike::shape{32, 20}>(
      ike::sequential("fc1"_m = ike::lazy_linear<10>{}), ike::seed{1});
#ifdef MENDED
  model["fc1.weight"_s] = ike::ones<float, ike::shape{10, 20}>();
#else
  model["fc1.weight"_s] = ike::ones<float, ike::shape{20, 10}>();
#endif
}
