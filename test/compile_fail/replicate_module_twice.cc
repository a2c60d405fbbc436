// expect: fc1: replicate was already applied to this module: groups_by_module names it twice
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
#ifdef MENDED
  using policy = ike::replicate_policy<ike::groups_by_module<"fc1", "fc2">>;
#else
  using policy = ike::replicate_policy<ike::groups_by_module<"fc1", "fc2", "fc1">>;
#endif
  ike::replicate<policy>(ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
}
