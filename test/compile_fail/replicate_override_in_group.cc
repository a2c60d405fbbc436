// expect: fc2: is in one group with others: override options at the first of them
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
  using groups = ike::groups_by_module<ike::together<"fc1", "fc2">>;
#ifdef MENDED
  using policy = ike::replicate_policy<groups, ike::override_at<"fc1", ike::bucket_cap<64>>>;
#else
  using policy = ike::replicate_policy<groups, ike::override_at<"fc2", ike::bucket_cap<64>>>;
#endif
  ike::replicate<policy>(ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
}
