// An override with an option of the whole policy alone.
// expect: override_at takes bucket_cap, bucket_caps, comm_hook, gradient_divide_factor and requires_gradient_sync
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
  using policy = ike::replicate_policy<ike::override_at<"fc1", ike::bucket_cap<ike::KiB(1)>>>;
#else
  using policy = ike::replicate_policy<ike::override_at<"fc1", ike::init_sync<false>>>;
#endif
  auto model =
      ike::replicate<policy>(ike::initialize<float, ike::shape{4, 20}>(net, ike::seed{1}), group);
}
