// A parameter of a const model is assigned a tensor.
// expect: ikebana: the elements of this view are const, so nothing can be assigned to it
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
#define CONST
#else
#define CONST const
#endif

void assign() {
  CONST auto model = ike::initialize<float, ike::shape{32, 20}>(
      ike::sequential("fc1"_m = ike::lazy_linear<10>{}), ike::seed{1});
  model["fc1.weight"_s] = ike::ones<float, ike::shape{10, 20}>();
}
