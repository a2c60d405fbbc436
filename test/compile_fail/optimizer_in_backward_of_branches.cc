// expect: with optimizer_in_backward every parameter has a gradient in every step, which is not so in a network with branches or several outputs
// line: 8
#include <ikebana/compose/choose.hpp>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential(
    "path"_m = ike::choose("a"_m = ike::lazy_linear<6>{}, "b"_m = ike::lazy_linear<6>{}));

void on_each_rank(ike::thread_group& group) {
#ifdef MENDED
  using policy = ike::replicate_policy<ike::find_unused_parameters<true>>;
#else
  using policy = ike::replicate_policy<ike::optimizer_in_backward<true>>;
#endif
  auto model =
      ike::replicate<policy>(ike::initialize<float, ike::shape{32, 4}>(net, ike::seed{1}), group);
}
