// expect: override_at takes bucket_cap, bucket_caps, comm_hook, gradient_divide_factor and requires_gradient_sync
// line: 7
// max-lines: 25
#include <ikebana/replicate/policy.hpp>

namespace ike = ikebana;

#ifdef MENDED
using policy = ike::replicate_policy<ike::override_at<"fc1", ike::bucket_cap<ike::KiB(1)>>>;
#else
using policy = ike::replicate_policy<ike::override_at<"fc1", ike::init_sync<false>>>;
#endif
static_assert(policy::syncs_at_start);
