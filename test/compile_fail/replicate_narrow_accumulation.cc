// expect: gradient_accumulation expects float or double, at least as wide as the model's type
// line: 6
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});

void on_each_rank(ike::thread_group& group) {
#ifdef MENDED
  using policy = ike::replicate_policy<ike::gradient_accumulation<double>>;
#else
  using policy = ike::replicate_policy<ike::gradient_accumulation<float>>;
#endif
  ike::replicate<policy>(ike::initialize<double, ike::shape{32, 20}>(net, ike::seed{1}), group);
}
