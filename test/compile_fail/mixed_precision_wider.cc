// expect: mixed_precision: a model of float computes in float: only what gradients are reduced in can be double
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/mixed_precision.hpp>
#include <ikebana/replicate/replicate.hpp>

namespace ike = ikebana;

#ifdef MENDED
using mixed = ike::mixed_precision<float, double>;
#else
using mixed = ike::mixed_precision<double>;
#endif

int main() {
  ike::single group;
  auto model = ike::replicate<ike::replicate_policy<mixed>>(
      ike::initialize<float, ike::shape{32, 20}>(ike::lazy_linear<10>{}, ike::seed{1}), group);
  model.zero_grad();
  return 0;
}
