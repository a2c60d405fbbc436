// expect: fc3: is not the path of a module to say a precision of; there are fc1, fc2
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/mixed_precision.hpp>
#include <ikebana/replicate/replicate.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "fc2"_m = ike::lazy_linear<5>{});

#ifdef MENDED
using at = ike::mixed_precision_at<"fc2", float>;
#else
using at = ike::mixed_precision_at<"fc3", float>;
#endif

int main() {
  ike::single group;
  using policy = ike::replicate_policy<ike::mixed_precision<ike::bfloat16, float, void, void, at>>;
  auto model =
      ike::replicate<policy>(ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
  model.zero_grad();
  return 0;
}
