// expect: no group of the policy is at or below this path: groups_by_module and override_at make groups
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "fc2"_m = ike::lazy_linear<2>{});

void on_each_rank(ike::thread_group& group) {
  using policy = ike::replicate_policy<ike::groups_by_module<"fc1">>;
  auto model =
      ike::replicate<policy>(ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
#ifdef MENDED
  model.set_requires_gradient_sync("fc1"_s, false);
#else
  model.set_requires_gradient_sync("fc2"_s, false);
#endif
}
